// Tensors whose memory may be read where an operation of LibTorch would be called.
#pragma once

#include <torch/types.h>

namespace cohort {

// Returns whether LibTorch would compute with the tensor as it is: on the CPU, contiguous, and nothing stands between
// an operation and its kernel.
bool is_plain(const torch::Tensor& tensor);

}  // namespace cohort
