// What an operation on parts comes to: its value and its gradients, to be compared with the same on the whole.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

namespace cohort::equivalence::operations {

using torch::Tensor;
using Change = std::function<Tensor(const Tensor&)>;

struct Outcome {
  Tensor y, x_gradient, weight_gradient;
};

// `whole` gathers what is divided, `split` divides. With `sums_parts` each replica's loss is that of its own part.
inline Outcome run(const std::function<Tensor(const Tensor& x, const Tensor& weight)>& operation,
                   const std::vector<int64_t>& x_sizes, const std::vector<int64_t>& weight_sizes, const Change& split,
                   const Change& whole, bool sums_parts) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(17);
  const Tensor x = torch::randn(x_sizes, generator, torch::kDouble).requires_grad_();
  const Tensor weight = torch::randn(weight_sizes, generator, torch::kDouble).requires_grad_();
  const Tensor y = operation(split(x), weight);
  const Tensor factor = (torch::arange(y.numel(), torch::kDouble) * 0.37).sin().view(y.sizes());
  ((sums_parts ? y : whole(y)) * factor).sum().backward();
  return {whole(y).detach(), x.grad(), weight.grad().defined() ? weight.grad() : torch::zeros_like(weight)};
}

inline double distance(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return 1e300;
  return a.numel() == 0 ? 0.0 : (a - b).abs().max().item<double>();
}

inline void expect_like(const Outcome& got, const Outcome& wanted) {
  constexpr double kClose = 1e-10;
  EXPECT_LT(distance(got.y, wanted.y), kClose);
  EXPECT_LT(distance(got.x_gradient, wanted.x_gradient), kClose);
  EXPECT_LT(distance(got.weight_gradient, wanted.weight_gradient), kClose);
}

}  // namespace cohort::equivalence::operations
