// The transport over TCP. Ranks that have an identity prove it to each other when they connect.
#pragma once

#include <memory>

#include "collective/transport.h"

namespace cohort {

// Connects all ranks. Unavailable: the host is not this machine's, or a rank cannot
// be reached.
std::unique_ptr<Transport> make_tcp(const Meeting& meeting);

}  // namespace cohort
