// NCCL between the GPUs of this process: a communicator for each. Builds without it have no_nccl_link.cpp instead.
#pragma once

#include <memory>
#include <vector>

#include "collective/devices/linked_sums.h"

namespace cohort {

bool has_nccl_link();

// Makes the communicators of different GPUs. Unavailable: NCCL cannot; Unimplemented: the build has none.
std::unique_ptr<DeviceLink> make_nccl_link(const std::vector<torch::Device>& devices);

}  // namespace cohort
