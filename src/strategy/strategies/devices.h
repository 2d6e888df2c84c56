// The ways in which a strategy finds its devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/local_place.h"
#include "cohort/device.h"
#include "strategy/core.h"

namespace cohort {

// Returns the named logical devices; if none is named, every visible GPU, or without one CPU:0 (which it says once). A
// device of another job or task, or one named twice: InvalidArgument; one that is not there: NotFound.
std::vector<LogicalDevice> choose_devices(std::string_view strategy, const std::vector<std::string>& names);

// Does the same for one of several workers: if none is named, its part of the visible GPUs where workers share a
// machine.
std::vector<LogicalDevice> choose_worker_devices(std::string_view strategy, const std::vector<std::string>& names,
                                                 const LocalPlace& place);

// Fails unless the replicas on these devices can compute a step together, each waiting for the others within it.
void require_lines(std::string_view speaker, const std::vector<LogicalDevice>& devices);

// Returns the plan of data parallelism over devices of this process alone, with a copy of every variable on each.
StrategyPlan local_plan(std::string name, std::vector<LogicalDevice> devices);

}  // namespace cohort
