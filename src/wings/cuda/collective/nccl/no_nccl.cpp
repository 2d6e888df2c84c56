// Stands in for nccl.cpp and nccl_link.cpp where LibTorch has no CUDA, or NCCL's header is not there.
#include "wings/cuda/collective/nccl/maker.h"

namespace cohort {

std::optional<NcclMaker> nccl_maker() {
  return std::nullopt;
}

}  // namespace cohort
