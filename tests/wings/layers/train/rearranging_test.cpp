// Permute and Rescaling, ReLU and LeakyReLU, Lambda and Wrap.
#include "cohort/train/layers/rearranging.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/layers/foreign.h"
#include "cohort/train/layers/relu.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::rearranging_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;

TEST(PermuteTest, PutsDimensionsIntoAnotherOrder) {
  const Built layer = build(Permute({3, 1, 2}), {2, 3, 4});
  expect_shape(layer, {2, 3, 4});
  EXPECT_EQ(layer.output, (Shape{4, 2, 3}));
  const torch::Tensor x = random({5, 2, 3, 4});
  expect_close(layer(x), x.permute({0, 3, 1, 2}));
  expect_error<InvalidArgument>([] { Permute({0, 1}); }, "dims must be the numbers from 1 on");
  expect_error<InvalidArgument>([] { build(Permute({2, 1}), {2, 3, 4}); }, "wanted 2 dimensions");
}

TEST(RescalingTest, MakesFloatingPoint) {
  const Built layer = build(Rescaling(1.0 / 255, -0.5), {2}, torch::kFloat);
  const torch::Tensor y = layer(torch::tensor({{0, 255}}, torch::kByte));
  EXPECT_EQ(y.scalar_type(), torch::kFloat);
  expect_close(y, torch::tensor({{-0.5f, 0.5f}}), 1e-6);
}

TEST(ReLUTest, HasNumbersOfItsOwn) {
  const torch::Tensor x = random({4, 50}) * 3;
  expect_close(build(ReLU(), {50})(x), torch::relu(x));
  expect_close(build(ReLU({.max_value = 1.5, .negative_slope = 0.25}), {50})(x),
               torch::leaky_relu(x, 0.25).clamp_max(1.5));
  const torch::Tensor above = x * x.ge(0.5) + 0.25 * (x - 0.5) * x.lt(0.5);
  expect_close(build(ReLU({.negative_slope = 0.25, .threshold = 0.5}), {50})(x), above);
  expect_close(build(LeakyReLU(), {50})(x), torch::leaky_relu(x, 0.3));
  expect_error<InvalidArgument>([] { ReLU({.negative_slope = -1.0}); }, "must be 0 or more");
}

TEST(ForeignTest, WrapsFunctionsAndModules) {
  const Built lambda = build(Lambda([](const torch::Tensor& x) { return x.slice(1, 0, 2) * 2; }), {5});
  EXPECT_EQ(lambda.output, (Shape{2}));
  const Layer layer = Wrap([](const Shape& input) { return torch::nn::Linear(input[0], 3); }, "mine");
  const Built wrapped = build(layer, {5});
  EXPECT_EQ(wrapped.output, (Shape{3}));
  EXPECT_EQ(wrapped["weight"].sizes(), (torch::IntArrayRef{3, 5}));
  EXPECT_EQ(wrapped["weight"].scalar_type(), torch::kDouble);
  const Built deep = build(
      Wrap([](const Shape&) { return torch::nn::Sequential(torch::nn::Linear(5, 2), torch::nn::Dropout()); }), {5});
  EXPECT_TRUE(deep["0.weight"].defined());
  deep.module->eval();
  expect_close(deep(torch::ones({1, 5}, torch::kDouble)), deep(torch::ones({1, 5}, torch::kDouble)));
  expect_error<InvalidArgument>([] { build(Lambda([](const torch::Tensor& x) { return x.sum(); }), {5}); },
                                "wanted [2, ...]");
}

}  // namespace
}  // namespace cohort::rearranging_test
