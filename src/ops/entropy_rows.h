// The cross-entropy of rows of logits by their labels as one operation.
#pragma once

#include <torch/types.h>

namespace cohort {

// Both functions compute the values of at::log_softmax and at::nll_loss as one node of autograd, with one pass over the
// logits forward and one backward. The result is undefined where LibTorch has to compute: if a tensor is not plain, is
// strided or empty, or the logits are neither float32 nor float64. c10::IndexError: a label is not a class.
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
