// NCCL between processes, as LibTorch has it.
#pragma once

#include <memory>

#include "collective/nccl/c10d_group.h"

namespace cohort {

bool has_nccl_group();

// Nothing is sent before the first collective. Unimplemented where the build has no NCCL.
std::unique_ptr<DeviceGroup> make_nccl_group(const GroupMeeting& meeting);

}  // namespace cohort
