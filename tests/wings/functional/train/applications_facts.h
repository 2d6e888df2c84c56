// The answers of Keras and torchvision, which applications_facts.py has written, and the numbers that it draws.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace cohort::testing {

// Returns the facts of "keras" or "torchvision".
inline nlohmann::json facts(const std::string& library) {
  const auto folder = std::filesystem::path(__FILE__).parent_path();
  return nlohmann::json::parse(std::ifstream(folder / ("applications_" + library + ".json")));
}

// Draws what drawn() of applications_facts.py draws.
inline torch::Tensor drawn(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t seed = 0;
  for (const char byte : name) seed = (seed * 31 + byte) % 2147483647;
  constexpr int64_t kRange = int64_t{1} << 32;
  torch::Tensor bits = (torch::arange(c10::multiply_integers(shape), torch::kLong) * 2654435761 + seed) % kRange;
  bits = (bits.bitwise_xor(torch::div(bits, 1 << 15, "floor")) * 1103515245) % kRange;
  bits = bits.bitwise_xor(torch::div(bits, 1 << 13, "floor"));
  const torch::Tensor part = (bits.to(torch::kDouble) / static_cast<double>(kRange)).view(shape);
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "num_batches_tracked") return torch::zeros(shape, torch::kLong);
  if (last == "running_var" || last == "variance") return 0.5 + part;
  if (last.ends_with("bias") || last == "running_mean" || last == "mean") return 0.2 * (part - 0.5);
  if (last.ends_with("weight") && shape.size() == 1) return 0.5 + 0.5 * part;
  const bool is_weight = last.ends_with("weight");
  const double bound = is_weight ? std::sqrt(6.0 * static_cast<double>(shape[0]) / part.numel()) : 1.0;
  return (2.0 * part - 1.0) * bound;
}

// Expects an output of float64.
inline void expect_few(const torch::Tensor& output, const nlohmann::json& wanted) {
  EXPECT_EQ(output.sizes().vec(), wanted.at("shape").get<std::vector<int64_t>>());
  const auto first = wanted.at("first").get<std::vector<double>>();
  const torch::Tensor few = output.flatten().slice(0, 0, static_cast<int64_t>(first.size()));
  EXPECT_TRUE(torch::allclose(few, torch::tensor(first, torch::kDouble), 1e-9, 1e-9)) << few;
  EXPECT_NEAR(output.sum().item<double>(), wanted.at("sum"), 1e-9 * output.abs().sum().item<double>());
  EXPECT_NEAR(output.square().sum().item<double>(), wanted.at("squares"), 1e-8 * wanted.at("squares").get<double>());
}

}  // namespace cohort::testing
