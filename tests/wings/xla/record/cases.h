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

std::vector<Case> unary_cases();
std::vector<Case> arithmetic_cases();
std::vector<Case> comparison_cases();
std::vector<Case> order_cases();
std::vector<Case> writing_cases();
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
using One = std::function<torch::Tensor(const torch::Tensor&)>;
using Two = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>;
using Three = std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&)>;
Case one(std::string name, torch::Tensor x, One fn);
Case two(std::string name, torch::Tensor x, torch::Tensor y, Two fn);
Case three(std::string name, torch::Tensor x, torch::Tensor y, torch::Tensor z, Three fn);
// Makes a case without gradients of one with them.
Case fixed(Case c);

}  // namespace cohort::record
