// Pooling to outputs of given sizes, held to Keras (adaptive_pooling_facts.py).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/drawn.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::adaptive_pooling_test {
namespace {

using nlohmann::json;
using testing::build;
using testing::Built;
using testing::expect_error;

Layer layer_of(const json& fact) {
  const std::string name = fact.at("layer");
  const Shape size = fact.at("output_size");
  const bool maximum = name.find("Max") != std::string::npos;
  if (size.size() == 1) {
    const AdaptivePooling1DOptions options{.output_size = size[0]};
    return maximum ? AdaptiveMaxPooling1D(options) : AdaptiveAveragePooling1D(options);
  }
  if (size.size() == 2) {
    const AdaptivePooling2DOptions options{.output_size = {size[0], size[1]}};
    return maximum ? AdaptiveMaxPooling2D(options) : AdaptiveAveragePooling2D(options);
  }
  const AdaptivePooling3DOptions options{.output_size = {size[0], size[1], size[2]}};
  return maximum ? AdaptiveMaxPooling3D(options) : AdaptiveAveragePooling3D(options);
}

void expect_numbers(const torch::Tensor& own, const std::vector<double>& wanted, const std::string& what) {
  ASSERT_EQ(own.numel(), static_cast<int64_t>(wanted.size())) << what;
  EXPECT_TRUE(torch::allclose(own.flatten(), torch::tensor(wanted, torch::kDouble), 0.0, 1e-6)) << what << own;
}

TEST(AdaptivePooling, IsKeras) {
  const auto file = std::filesystem::path(__FILE__).parent_path() / "adaptive_pooling_facts.json";
  const json facts = json::parse(std::ifstream(file));
  EXPECT_EQ(facts.size(), 10U);
  for (const json& fact : facts) {
    const std::string name = fact.at("layer");
    Shape shape = fact.at("size");
    shape.insert(shape.begin(), 2);
    const Layer layer = layer_of(fact);
    EXPECT_EQ(layer.type(), name);
    const Built built = build(layer, shape);
    shape.insert(shape.begin(), 2);
    const torch::Tensor x = testing::drawn(name, shape).to(torch::kFloat).to(torch::kDouble).requires_grad_();
    const torch::Tensor y = built(x);
    expect_numbers(y, fact.at("y"), name);
    y.square().sum().backward();
    expect_numbers(x.grad(), fact.at("gradient"), name + "'s gradient");
    testing::expect_shape(built, Shape(shape.begin() + 1, shape.end()));
    shape.front() = 0;
    EXPECT_EQ(built(torch::zeros(shape, torch::kDouble)).size(0), 0);
  }
}

TEST(AdaptivePooling, RefusesWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { AdaptiveMaxPooling2D({}); },
                                "AdaptiveMaxPooling2D: output_size must be positive, got [0, 0]");
  expect_error<InvalidArgument>(
      [] {
        build(AdaptiveAveragePooling1D({.output_size = 2}), {3, 4, 5});
      },
      "wanted channels and 1 dimensions");
}

}  // namespace
}  // namespace cohort::adaptive_pooling_test
