// What losses and metrics have in common: fitting the shapes of targets, predictions and weights.
#pragma once

#include <torch/types.h>

#include <string>
#include <utility>

namespace cohort {

// y with the prediction's shape and dtype; a dimension of size 1 at the end may be missing or too much.
torch::Tensor fit_target(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction);

// Class indices as int64, of the prediction's shape without `axis`.
torch::Tensor fit_labels(const std::string& speaker, const torch::Tensor& y, const torch::Tensor& prediction,
                         int64_t axis);

// The weight, ready to be multiplied with values of [batch, ...]: dimensions of size 1 are appended.
torch::Tensor fit_weight(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& values);

// [batch, ...] -> [batch]
torch::Tensor mean_of_example(const torch::Tensor& values);

// Product of all dimensions but the first.
int64_t values_an_example(const torch::Tensor& values);

}  // namespace cohort
