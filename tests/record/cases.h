// Uses of every operation that can be recorded. Tests run them on the host and on a recorded device and compare.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace cohort::record {

using Tensors = std::vector<torch::Tensor>;

struct Case {
  std::string name;
  std::function<Tensors(const Tensors&)> run;
  // Floating inputs are float64 here; tests convert them.
  Tensors inputs;
  // Whether gradients flow from the floating results to the floating inputs.
  bool differentiable = true;
};

std::vector<Case> elementwise_cases();
std::vector<Case> activation_cases();
std::vector<Case> reduction_cases();
std::vector<Case> shape_cases();
std::vector<Case> indexing_cases();
std::vector<Case> linear_cases();
std::vector<Case> convolution_cases();
std::vector<Case> pooling_cases();
std::vector<Case> normalization_cases();
std::vector<Case> loss_cases();
std::vector<Case> all_cases();

// Makes inputs: normal numbers, numbers in [0.1, 2), numbers in [-0.9, 0.9), integers below a bound, booleans.
torch::Tensor normal(c10::IntArrayRef sizes);
torch::Tensor positive(c10::IntArrayRef sizes);
torch::Tensor inside(c10::IntArrayRef sizes);
torch::Tensor below(int64_t bound, c10::IntArrayRef sizes);
torch::Tensor mask(c10::IntArrayRef sizes);

// Makes a case of a function of one, two or three tensors with one result.
Case one(std::string name, std::function<torch::Tensor(const torch::Tensor&)> fn, torch::Tensor x,
         bool differentiable = true);
Case two(std::string name, std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)> fn, torch::Tensor x,
         torch::Tensor y, bool differentiable = true);
Case three(std::string name,
           std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&)> fn,
           torch::Tensor x, torch::Tensor y, torch::Tensor z, bool differentiable = true);

}  // namespace cohort::record
