// CUDA graphs, by LibTorch's.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "device/device_graph.h"

namespace cohort {

// Makes a graph without segments; see DeviceBackend::make_graph().
std::unique_ptr<DeviceGraph> make_cuda_graph(c10::Device device, const std::vector<at::Generator>& generators);

}  // namespace cohort
