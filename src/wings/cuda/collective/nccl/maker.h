// What this wing has of NCCL. Builds without it have no_nccl.cpp instead of nccl.cpp and nccl_link.cpp.
#pragma once

#include <optional>

#include "collective/devices/nccl.h"

namespace cohort {

// Returns nothing where LibTorch has no CUDA, or NCCL's header is not there.
std::optional<NcclMaker> nccl_maker();

}  // namespace cohort
