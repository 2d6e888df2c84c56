// The memory of images, [batch, channels, height, width], that have the channels last, for passes that take pointers.
#pragma once

#include <ATen/Functions.h>
#include <torch/types.h>

#include <cstdint>

#include "ops/plain_tensor.h"

namespace cohort::channels_last {

// The elements that are worth a thread, as at::parallel_for has them in LibTorch's kernels.
constexpr int64_t kGrain = 1 << 15;

// Returns images of these sizes, not yet computed.
inline torch::Tensor empty(torch::IntArrayRef sizes, const torch::TensorOptions& options) {
  return at::empty(sizes, options.memory_format(at::MemoryFormat::ChannelsLast));
}

// Returns the memory from the channels of an element on; the elements of all images are counted together. For a
// contiguous matrix, [..., channels], returns that of a row.
inline std::byte* channels_at(const torch::Tensor& images, int64_t element) {
  return element_at(images, element * images.size(1));
}

}  // namespace cohort::channels_last
