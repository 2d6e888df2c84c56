// Layers that make one tensor of several: Concatenate()({a, b}).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct ConcatenateOptions {
  int64_t axis = -1;      // the dimension along which they are put side by side; the batch's is 0, and not allowed
  std::string name = {};  // empty: the model gives one
};
// Puts tensors side by side, whose other dimensions are the same. Masks are put side by side where that is along the
// steps; otherwise a step counts that counts in any input (Keras). An input without a mask counts whole.
Layer Concatenate(const ConcatenateOptions& options = {});

struct MergeOptions {
  std::string name = {};  // empty: the model gives one
};
// The elementwise sum of two or more tensors; as those below it repeats dimensions of size 1, and those that are
// missing behind the batch's. If all inputs have masks, a step counts that counts in any of them (Keras). In Multiply,
// Maximum and Minimum an input takes no part in steps that its mask leaves out.
Layer Add(const MergeOptions& options = {});
// The difference of two tensors.
Layer Subtract(const MergeOptions& options = {});
// The product.
Layer Multiply(const MergeOptions& options = {});
// The mean.
Layer Average(const MergeOptions& options = {});
// The larger element; of equal ones the first input's gets the gradient, as in TensorFlow.
Layer Maximum(const MergeOptions& options = {});
// The smaller element.
Layer Minimum(const MergeOptions& options = {});

struct DotOptions {
  std::vector<int64_t> axes = {};  // the dimension of both inputs, or one of each, that is summed over; needed
  bool normalize = false;          // scales both to length 1 along it first: cosines
  std::string name = {};           // empty: the model gives one
};
// The products of two tensors, summed along an axis of each: [batch, ..., n] and [batch, n, ...] -> [batch, ..., ...].
Layer Dot(const DotOptions& options);

// Makes a layer of a function without parameters that takes several tensors. The output's shape is found by calling it
// on zeros; dimensions that are not known stay so where calls with two sizes differ.
Layer MergeLambda(std::function<torch::Tensor(const std::vector<torch::Tensor>&)> function, std::string name = {});

}  // namespace cohort
