// Max pooling of images with the channels last, and its gradients, by vector code.
#pragma once

#include <torch/types.h>

#include <vector>

#include "ops/convolution.h"
#include "ops/kernels/pool_shape.h"

namespace cohort {

// Takes plain tensors (ops/plain_tensor.h) of float32 or float64 with the channels last. Autograd does not see it. It
// runs on the threads that an operation may use.
class MaxPool {
 public:
  // For images of these sizes, [batch, channels, height, width].
  MaxPool(const Window2& window, torch::IntArrayRef sizes);

  // Returns whether a window is supported.
  static bool fits(const Window2& window);

  // Returns the sizes of so many images, and of their results.
  std::vector<int64_t> image_sizes(int64_t number) const;
  std::vector<int64_t> result_sizes(int64_t number) const;

  // Stores the result, with bias (may be undefined) and ReLU, in y, and where in their windows its elements lie in
  // `places`, bytes of the same sizes.
  void store(const torch::Tensor& y, const torch::Tensor& places, const torch::Tensor& images,
             const torch::Tensor& bias, bool relu) const;

  // Stores the gradient by the images in dst, and the bias's in sums, contiguous, a row an image. y: undefined without
  // ReLU.
  void store_gradients(const torch::Tensor& dst, const torch::Tensor& sums, const torch::Tensor& gradient,
                       const torch::Tensor& y, const torch::Tensor& places) const;

  // Returns the gradient by the images of one behind the ReLU, by operations that have gradients themselves.
  torch::Tensor gradient_by_operations(const torch::Tensor& gradient, const torch::Tensor& places) const;

 private:
  kernels::PoolShape shape_;
};

}  // namespace cohort
