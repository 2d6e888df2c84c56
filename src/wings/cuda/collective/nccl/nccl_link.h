// NCCL between the GPUs of this process: a communicator for each.
#pragma once

#include <memory>
#include <vector>

#include "collective/devices/linked_sums.h"

namespace cohort {

// Makes the communicators of different GPUs. Unavailable: NCCL cannot.
std::unique_ptr<DeviceLink> link_by_nccl(const std::vector<torch::Device>& devices);

}  // namespace cohort
