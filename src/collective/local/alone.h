// A wire of one process, to which there are no messages.
#pragma once

#include <memory>

#include "collective/process/wire.h"

namespace cohort {

std::unique_ptr<Wire> make_alone();

}  // namespace cohort
