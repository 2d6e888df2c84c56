// The cross-entropy of rows of logits by their labels as one operation.
#pragma once

#include <torch/types.h>

namespace cohort {

// Both are what at::log_softmax and at::nll_loss compute, as one node of autograd with one pass over the logits forward
// and one backward. Undefined where LibTorch's operations have to do it: on tensors that are not the CPU's own plain
// ones, of other dtypes than float32 and float64, of strides, or empty. c10::IndexError: a label that is no class.
// logits: [rows, classes], labels: int64, [rows].

// Returns the cross-entropy of each row, [rows].
torch::Tensor entropy_of_rows(const torch::Tensor& logits, const torch::Tensor& labels);

// The sum of the rows divided by two numbers.
struct EntropySums {
  torch::Tensor value, total;
};

// Returns the sums of the rows' cross-entropies, divided so.
EntropySums entropy_of_all_rows(const torch::Tensor& logits, const torch::Tensor& labels, double value_divisor,
                                double total_divisor);

}  // namespace cohort
