// NVIDIA's GPUs, by a LibTorch that has CUDA.
#pragma once

#include <memory>

#include "device/backend.h"

namespace cohort {

// Returns null in a build whose LibTorch is without CUDA.
std::unique_ptr<DeviceBackend> make_cuda_backend();

}  // namespace cohort
