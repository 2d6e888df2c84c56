// Initializers and regularizers: by name and with numbers. tests/golden/initializers_test.cpp is about how far the
// values scatter.
#include "cohort/train/layers/initializer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::initializer_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;

torch::Tensor filled(const Initializer& initializer, std::vector<int64_t> shape) {
  torch::manual_seed(7);
  const torch::Tensor parameter = torch::empty(shape, torch::kDouble);
  initializer.fill(parameter, Fans::of_kernel(shape));
  return parameter;
}

TEST(InitializerNamesTest, AreKeras) {
  for (const char* name : {"zeros", "ones", "glorot_uniform", "GlorotNormal", "he_uniform", "HeNormal", "lecun_uniform",
                           "lecun_normal", "random_uniform", "RandomNormal", "truncated_normal", "orthogonal",
                           "identity", "variance_scaling", "Constant"}) {
    EXPECT_EQ(filled(name, {6, 4}).numel(), 24) << name;
  }
  EXPECT_TRUE(torch::equal(filled("he_normal", {6, 4}), filled(Initializer::kHeNormal, {6, 4})));
  EXPECT_TRUE(torch::equal(filled("glorot_uniform", {6, 4}), filled(Initializer::kGlorotUniform, {6, 4})));
  expect_error<NotFound>([] { Initializer::parse("xavier"); }, "no initializer \"xavier\"; there are");
  const Built layer = build(Dense({.units = 2, .kernel_initializer = "ones", .bias_initializer = "ones"}), {3});
  EXPECT_EQ(layer["weight"].sum().item<double>() + layer["bias"].sum().item<double>(), 8.0);
}

TEST(InitializerTest, TakesNumbers) {
  EXPECT_EQ(filled(Initializer::constant(2.5), {3}).sum().item<double>(), 7.5);
  const torch::Tensor uniform = filled(Initializer::random_uniform(1.0, 3.0), {50, 50});
  EXPECT_GE(uniform.min().item<double>(), 1.0);
  EXPECT_LT(uniform.max().item<double>(), 3.0);
  const torch::Tensor cut = filled(Initializer::truncated_normal({.mean = 5.0, .stddev = 2.0}), {50, 50});
  EXPECT_LE((cut - 5.0).abs().max().item<double>(), 4.0);
  for (const auto& shape : {std::vector<int64_t>{7, 4}, std::vector<int64_t>{4, 7}, std::vector<int64_t>{3, 2, 2}}) {
    const torch::Tensor q = filled(Initializer::orthogonal(3.0), shape).flatten(1) / 3.0;
    const torch::Tensor tall = q.size(0) >= q.size(1) ? q : q.t();
    expect_close(torch::matmul(tall.t(), tall), torch::eye(tall.size(1), torch::kDouble), 1e-10);
  }
  expect_close(filled(Initializer::identity(2.0), {2, 3}),
               torch::tensor({{2.0, 0.0, 0.0}, {0.0, 2.0, 0.0}}, torch::kDouble));
  expect_error<InvalidArgument>([] { filled("identity", {3}); }, "identity fills matrices");
  expect_error<InvalidArgument>([] { filled("orthogonal", {3}); }, "2 dimensions or more");
  expect_error<InvalidArgument>([] { Initializer::variance_scaling({.scale = 0.0}); }, "the scale 0");
}

TEST(RegularizerTest, CostsWhatItSays) {
  const torch::Tensor x = torch::tensor({1.0, -2.0, 3.0}, torch::kDouble).requires_grad_();
  EXPECT_NEAR(Regularizer::l1()(x).item<double>(), 0.06, 1e-12);
  EXPECT_NEAR(Regularizer::l2(0.5)(x).item<double>(), 7.0, 1e-12);
  EXPECT_NEAR(Regularizer("l1_l2")(x).item<double>(), 0.2, 1e-12);
  EXPECT_FALSE(Regularizer());
  expect_error<NotFound>([] { Regularizer::parse("l3"); }, "no regularizer \"l3\"");
  expect_error<InvalidArgument>([] { Regularizer::l2(-1.0); }, "0 or more");
}

TEST(RegularizerTest, LayersAddItUp) {
  const Built layer = build(Dense({.units = 2,
                                   .bias_initializer = "ones",
                                   .kernel_regularizer = "l2",
                                   .bias_regularizer = Regularizer::l1(0.5)}),
                            {3});
  const double wanted = 0.01 * layer["weight"].square().sum().item<double>() + 0.5 * 2.0;
  EXPECT_NEAR(layer.module->penalty().item<double>(), wanted, 1e-12);
  layer["weight"].set_requires_grad(false);
  EXPECT_NEAR(layer.module->penalty().item<double>(), 1.0, 1e-12);
  EXPECT_FALSE(build(Dense(2), {3}).module->penalty().defined());
  for (const Layer& each : {Conv2D({.filters = 2, .kernel_size = 2, .kernel_regularizer = "l2"}),
                            DepthwiseConv2D({.kernel_size = 2, .depthwise_regularizer = "l2"}),
                            SeparableConv2D({.filters = 2, .kernel_size = 2, .pointwise_regularizer = "l2"}),
                            Conv2DTranspose({.filters = 2, .kernel_size = 2, .kernel_regularizer = "l2"})}) {
    EXPECT_GT(build(each, {3, 4, 4}).module->penalty().item<double>(), 0.0) << each.type();
  }
  for (const Layer& each :
       {LSTM({.units = 2, .recurrent_regularizer = "l2"}), Bidirectional(GRU({.units = 2, .kernel_regularizer = "l2"})),
        TimeDistributed(Dense({.units = 2, .kernel_regularizer = "l2"})),
        MultiHeadAttention({.num_heads = 1, .key_dim = 2, .kernel_regularizer = "l2"}),
        Conv1D({.filters = 2, .kernel_size = 2, .kernel_regularizer = "l2"})}) {
    EXPECT_GT(build(each, {3, 4}).module->penalty().item<double>(), 0.0) << each.type();
  }
}

}  // namespace
}  // namespace cohort::initializer_test
