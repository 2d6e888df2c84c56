// How a strategy finds its devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cohort/device.h"

namespace cohort {

// The named logical devices; none named: every visible GPU, without one CPU:0 (which it says once). A device of another
// job or task, or one named twice: InvalidArgument; one that is not there: NotFound.
std::vector<LogicalDevice> choose_devices(std::string_view strategy, const std::vector<std::string>& names);

}  // namespace cohort
