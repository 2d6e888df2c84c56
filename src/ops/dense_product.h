// The dense layer's arithmetic as one operation: product, bias and activation, and their gradients.
#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/types.h>

namespace cohort {

// Returns x weight^T + bias, or max(that, 0), as at::linear and at::relu do, as one node of autograd whose passes over
// memory are one forward and one backward: a small layer's step is a fifth shorter. Undefined where LibTorch's
// operations have to do it: on tensors that are not the CPU's own plain ones (of devices, in autocast, where operations
// are recorded, divided or counted), of other dtypes than float32 and float64, of strides, of other shapes, or empty.
// x: [..., inputs], weight: [units, inputs], bias: [units].
torch::Tensor dense_product(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias, bool relu);

// Returns x weight^T + bias: dense_product() where that fits, else LibTorch's at::linear(). A bias may be undefined.
torch::Tensor affine(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);
// Returns layer->forward(x), computed so.
torch::Tensor affine(const torch::nn::Linear& layer, const torch::Tensor& x);

}  // namespace cohort
