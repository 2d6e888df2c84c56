// Gloo's collectives between processes, and the transport that has them. Builds without Gloo have no_gloo.cpp instead.
#pragma once

#include <memory>

#include "collective/engine.h"
#include "collective/transport.h"

namespace cohort {

// Connects all ranks. Unavailable: the host is not this machine's, or a rank cannot be reached.
std::unique_ptr<Engine> make_gloo_engine(const Meeting& meeting);

// Connects all ranks by it and, for messages, by the core's transport over TCP. InvalidArgument: they have an identity,
// which Gloo would not ask strangers for.
std::unique_ptr<Transport> make_gloo(const Meeting& meeting);

}  // namespace cohort
