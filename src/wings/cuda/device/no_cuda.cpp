// Stands in for cuda.cpp where LibTorch is without CUDA.
#include "wings/cuda/device/cuda.h"

namespace cohort {

std::unique_ptr<DeviceBackend> make_cuda_backend() {
  return nullptr;
}

}  // namespace cohort
