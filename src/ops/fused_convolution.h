// A convolution with what stands around it as one operation: bias, ReLU and a pooling of maxima, and their gradients.
#pragma once

#include <torch/types.h>

#include "ops/convolution.h"

namespace cohort {

// What follows a convolution of images.
struct AfterConvolution {
  bool relu = false;                 // max(y, 0)
  const Window2* pooling = nullptr;  // the windows whose largest elements are the result; null: there are none
};

// Returns the convolution of x, [batch, channels, height, width], by convolve_images(), and what follows it, as one
// node of autograd. Undefined where that gains nothing, or where LibTorch's operations have to do it: on tensors that
// are not the CPU's own plain ones (of devices, in autocast, where operations are recorded, divided or counted), of
// other dtypes than float32 and float64, without the channels last in x or the weight, with padding that differs
// between two ends, empty, or too small for a window. A bias may be undefined.
torch::Tensor fused_convolution(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                const Window2& window, int64_t groups, const AfterConvolution& after);

}  // namespace cohort
