// Products of matrices in the CPU's memory, by the fastest library available.
#pragma once

#include <torch/types.h>

namespace cohort {

// Stores a b in `result`, or adds it. a: [m, k], b: [k, n], result: [m, n], all of one dtype and plain but for their
// strides (is_plain()): rows or columns of each are contiguous, rows of the result. Autograd does not see it. A product
// of as many threads has the same bits each time.
void store_product(const torch::Tensor& result, const torch::Tensor& a, const torch::Tensor& b);
void add_product(const torch::Tensor& result, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace cohort
