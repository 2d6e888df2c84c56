// The flags of the devices of a process, and of the cluster that it is in.
#pragma once

#include <string>
#include <vector>

#include "cohort/models/strategy_flags.h"

namespace cohort {

// Returns one CPU device for each replica, or the first GPUs.
std::vector<std::string> devices_of(const StrategyFlags& flags);
// Returns the devices of one of several workers, which takes its own part of the GPUs of its machine.
std::vector<std::string> worker_devices_of(const StrategyFlags& flags);
// Returns the number of parts of an input, each of which has a device.
int parts_of(const StrategyFlags& flags);
// Fails if the flags describe another cluster than the environment does.
void check_cluster(const StrategyFlags& flags);

}  // namespace cohort
