// Checks of the values and the gradients of losses.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "cohort/error.h"
#include "cohort/train/loss.h"

namespace cohort::loss_values {

inline torch::Tensor doubles(std::vector<double> values, std::vector<int64_t> shape) {
  return torch::tensor(values, torch::kDouble).view(shape);
}

inline void expect_values(const torch::Tensor& tensor, std::vector<double> wanted, double tolerance = 1e-12) {
  ASSERT_EQ(tensor.numel(), static_cast<int64_t>(wanted.size()));
  const torch::Tensor flat = tensor.reshape({-1}).to(torch::kDouble);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(flat[static_cast<int64_t>(i)].item<double>(), wanted[i], tolerance) << "at " << i;
  }
}

template <typename Fn>
inline void expect_invalid(const Fn& fn, const std::string& part) {
  try {
    fn();
    ADD_FAILURE() << "no error; wanted one with \"" << part << "\"";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

// sum() and the mean agree with per_example(), weighted or not, and so do their gradients; an empty batch gives 0.
inline void expect_consistent(const Loss& loss, const torch::Tensor& y, const torch::Tensor& prediction) {
  const torch::Tensor weight = torch::linspace(0.5, 2.0, prediction.size(0), torch::kDouble);
  const torch::Tensor one = prediction.clone().requires_grad_(), two = prediction.clone().requires_grad_();
  loss.sum(y, one).backward();
  loss.per_example(y, two).sum().backward();
  EXPECT_LT((one.grad() - two.grad()).abs().max().item<double>(), 1e-12);
  expect_values(loss.sum(y, prediction), {loss.per_example(y, prediction).sum().item<double>()});
  const torch::Tensor weighted = loss.per_example(y, prediction) * weight;
  expect_values(loss.sum(y, prediction, weight), {weighted.sum().item<double>()});
  expect_values(loss(y, prediction, weight), {weighted.mean().item<double>()});

  torch::Tensor none = prediction.slice(0, 0, 0).clone().requires_grad_();
  const torch::Tensor nothing = loss.sum(y.slice(0, 0, 0), none);
  EXPECT_EQ(nothing.item<double>(), 0.0);
  nothing.backward();
  EXPECT_TRUE(none.grad().defined());
  EXPECT_EQ(loss(y.slice(0, 0, 0), none, weight.slice(0, 0, 0)).item<double>(), 0.0);
}

}  // namespace cohort::loss_values
