// The transport over TCP for ranks that have an identity: they prove it to each other when they connect.
#pragma once

#include <memory>

#include "collective/transport.h"

namespace cohort {

// Connects all ranks of a meeting that has an identity. Unavailable: the host is not this machine's, or a rank cannot
// be reached.
std::unique_ptr<Transport> make_tcp(const Meeting& meeting);

}  // namespace cohort
