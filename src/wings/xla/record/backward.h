// LibTorch's thread of a device holds what torch::autograd::grad() returned for a moment longer than its caller waits.
#pragma once

#include <ATen/core/Tensor.h>

namespace cohort::record {

// Returns when the thread of the tensor's device has let go of the gradients of all backwards that have come to their
// end. Otherwise they might count as results of the program, on one replica and not on another one.
void settle_backward(const at::Tensor& on_device);

}  // namespace cohort::record
