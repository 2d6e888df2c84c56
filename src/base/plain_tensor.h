// Tensors whose memory may be read where an operation of LibTorch would be called.
#pragma once

#include <torch/types.h>

namespace cohort {

// Returns whether LibTorch would compute with the tensor as it is: on the CPU, contiguous, and nothing stands between
// an operation and its kernel.
bool is_plain(const torch::Tensor& tensor);

// Returns whether this thread's operations go the ordinary way: no mode, no autocast, no recording sees them.
bool is_ordinary_thread();

}  // namespace cohort
