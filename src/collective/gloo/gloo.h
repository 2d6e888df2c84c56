// The transport over TCP, by the Gloo library. Builds without Gloo have no_gloo.cpp instead.
#pragma once

#include <memory>

#include "collective/transport.h"

namespace cohort {

// Connects all ranks. Unavailable: the host is not this machine's, or a rank cannot be reached.
std::unique_ptr<Transport> make_gloo(const Meeting& meeting);

}  // namespace cohort
