// Stands in for cuda_waits.cpp where LibTorch is without CUDA.
#include "tests/gpu/cuda_waits.h"

namespace cohort::gpu {

void refuse_cuda_waits(bool /*refuse*/) {}

}  // namespace cohort::gpu
