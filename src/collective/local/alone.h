// A transport of one process, to which there are no messages.
#pragma once

#include <memory>

#include "collective/transport.h"

namespace cohort {

std::unique_ptr<Transport> make_alone();

}  // namespace cohort
