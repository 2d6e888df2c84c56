// Tensors whose memory may be read by pointers where an operation of LibTorch would be called.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>

namespace cohort {

// Returns whether LibTorch would compute with the tensor as it is: on the CPU, contiguous, and nothing stands between
// an operation and its kernel.
bool is_plain(const torch::Tensor& tensor);
// The same of any strides.
bool is_plain_strided(const torch::Tensor& tensor);

// Returns whether nobody else has the tensor or its memory.
bool is_own(const torch::Tensor& tensor);

// Returns the memory of a contiguous tensor from an element on.
inline std::byte* element_at(const torch::Tensor& tensor, int64_t element) {
  return static_cast<std::byte*>(tensor.data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

// Returns a plain tensor without values, without a call of LibTorch's dispatcher. For ops whose parts nothing else
// sees.
torch::Tensor empty_plain(c10::IntArrayRef sizes, c10::ScalarType dtype);

}  // namespace cohort
