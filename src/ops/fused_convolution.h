// A convolution with what stands around it as one operation: bias, ReLU and a pooling of maxima, and their gradients.
#pragma once

#include <torch/types.h>

#include "ops/convolution.h"

namespace cohort {

// The ops after a convolution of images.
struct AfterConvolution {
  bool relu = false;                 // max(y, 0)
  const Window2* pooling = nullptr;  // the windows whose largest elements are the result; null: there are none
};

// Returns the convolution of x, [batch, channels, height, width], by convolve_images(), and of the ops after it, as
// one node of autograd. Returns an undefined tensor where that gains nothing or LibTorch has to compute: if a tensor is
// not plain (devices, autocast, operations that are recorded, divided or counted), is empty, or is neither float32 nor
// float64, if neither x nor the weight has the channels last, if the padding differs between two ends, or if an image
// is too small for a window. A bias may be undefined.
torch::Tensor fused_convolution(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                const Window2& window, int64_t groups, const AfterConvolution& after);

}  // namespace cohort
