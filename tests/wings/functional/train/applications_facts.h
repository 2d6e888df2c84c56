// The answers of Keras and torchvision, which applications_facts.py has written.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/drawn.h"

namespace cohort::testing {

// Returns the facts of "keras" or "torchvision".
inline nlohmann::json facts(const std::string& library) {
  const auto folder = std::filesystem::path(__FILE__).parent_path();
  return nlohmann::json::parse(std::ifstream(folder / ("applications_" + library + ".json")));
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
