// The sum of replicas over what joins their devices (collective/devices/linked_sums.h).
#pragma once

#include <chrono>
#include <string_view>

#include "collective/algorithms/cross_device_sum.h"
#include "collective/devices/linked_sums.h"

namespace cohort {

// Makes a sum that is enqueued for all devices at once, each rank's behind what its thread has given its device and
// before what it will. The link is made with the first sum.
CrossDeviceSum make_linked_sum(std::string_view name, MakeLink make, std::chrono::milliseconds timeout);

}  // namespace cohort
