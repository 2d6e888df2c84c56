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

}  // namespace cohort
