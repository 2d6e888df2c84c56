// Tensors whose memory may be read where an operation of LibTorch would be called.
#pragma once

#include <torch/types.h>

namespace cohort {

// Returns whether LibTorch would compute with the tensor as it is: on the CPU, contiguous, and nothing stands between
// an operation and its kernel.
bool is_plain(const torch::Tensor& tensor);
// The same of any strides.
bool is_plain_strided(const torch::Tensor& tensor);

// Returns whether nobody else has the tensor or its memory.
bool is_own(const torch::Tensor& tensor);

// Returns a plain tensor without values, for which nothing is asked of LibTorch's dispatcher: for operations of our
// own, of which nothing else sees the parts.
torch::Tensor empty_plain(c10::IntArrayRef sizes, c10::ScalarType dtype);

}  // namespace cohort
