#include "cohort/train/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>

#include "cohort/error.h"
#include "cohort/train/metrics.h"
#include "tests/support/log_watch.h"
#include "tests/train/loss_values.h"

namespace cohort::more_losses_test {
namespace {

namespace F = torch::nn::functional;

using namespace loss_values;

TEST(RegressionTest, MatchesHandComputedValues) {
  const torch::Tensor y = doubles({0, 1, 0, 0}, {2, 2}), p = doubles({1, 1, 3, 0}, {2, 2});
  expect_values(MeanSquaredError().per_example(y, p), {0.5, 4.5});
  expect_values(MeanAbsoluteError().per_example(y, p), {0.5, 1.5});
  expect_values(Huber().per_example(y, p), {0.25, 1.25});
  expect_values(Huber({.delta = 2.0}).per_example(y, p), {0.25, 2.0});
  for (const Loss& loss : {MeanSquaredError(), MeanAbsoluteError(), Huber()}) expect_consistent(loss, y, p);
  expect_invalid([] { Huber({.delta = 0.0}); }, "delta must be positive");
  expect_values(MeanSquaredError()(torch::tensor({1, 2}), doubles({1.5, 2.5}, {2, 1})), {0.25});
}

// A loss or a metric warns once in a process, by its name. These names are of this test alone.
TEST(RegressionTest, WarnsOnceThatItRepeatsValues) {
  static std::vector<std::string> warnings;
  const testing::LogWatch watch([](const std::string& message) { warnings.push_back(message); });
  const Loss loss = MeanSquaredError({.name = "squares_of_ten"});
  Metric metric = RootMeanSquaredError({.name = "root_of_ten"});
  MetricState state = metric.make_state();
  const torch::Tensor target = torch::ones({64}), ten = torch::zeros({64, 10});
  for (int call = 0; call < 3; ++call) {
    EXPECT_EQ(loss(target, torch::zeros({64, 1})).item<double>(), 1.0) << "nothing is repeated";
    EXPECT_EQ(loss(target, ten).item<double>(), 1.0);
    metric.update(state, target, ten);
  }
  const std::string shapes = ": the target has shape [64], the prediction [64, 10]: values are repeated to fit";
  EXPECT_THAT(warnings, ::testing::ElementsAre(::testing::StartsWith("[losses] squares_of_ten" + shapes),
                                               ::testing::StartsWith("[metrics] root_of_ten" + shapes)));
}

// Values of Keras 3.15 for a target and a prediction of [2, 1] and [2, 3].
TEST(RegressionTest, RepeatsSingleValuesAsTensorFlow) {
  const torch::Tensor one = torch::tensor({0.25, 0.75}, torch::kDouble);
  const torch::Tensor many = torch::tensor({0.2, 0.7, 0.4, 0.9, 0.1, 0.3}, torch::kDouble).view({2, 3});
  struct Case {
    Loss loss;
    std::array<double, 2> of_one_target, of_one_prediction;
  };
  constexpr auto kNone = LossReduction::kNone;
  const std::vector<Case> cases = {
      {MeanSquaredError({.reduction = kNone}), {0.07583333, 0.21583333}, {0.07583333, 0.21583333}},
      {MeanAbsoluteError({.reduction = kNone}), {0.21666667, 0.41666667}, {0.21666667, 0.41666667}},
      {Huber({.reduction = kNone}), {0.03791667, 0.10791667}, {0.03791667, 0.10791667}},
      {LogCosh({.reduction = kNone}), {0.03682141, 0.10235868}, {0.03682141, 0.10235868}},
      {Poisson({.reduction = kNone}), {0.67353356, 1.33631258}, {0.85072738, 0.87466217}},
      {Hinge({.reduction = kNone}), {0.89166667, 0.675}, {0.89166667, 0.675}},
      {SquaredHinge({.reduction = kNone}), {0.79770833, 0.520625}, {0.79770833, 0.520625}},
      {MeanAbsolutePercentageError({.reduction = kNone}), {86.66666667, 55.55555556}, {42.26190476, 272.22222222}},
      {MeanSquaredLogarithmicError({.reduction = kNone}), {0.03635222, 0.10356709}, {0.03635222, 0.10356709}},
  };
  for (const Case& each : cases) {
    for (const torch::Tensor& single : {one, one.unsqueeze(1)}) {
      const auto expect = [&](const torch::Tensor& values, const std::array<double, 2>& wanted) {
        ASSERT_EQ(values.sizes(), (std::vector<int64_t>{2}));
        for (int i = 0; i < 2; ++i) {
          EXPECT_NEAR(values[i].item<double>(), wanted.at(static_cast<std::size_t>(i)), 1e-7) << each.loss.name();
        }
      };
      expect(each.loss(single, many), each.of_one_target);
      expect(each.loss(many, single), each.of_one_prediction);
      // The sum that a step takes is that of the values.
      EXPECT_NEAR(each.loss.sum(single, many).item<double>(), each.loss(single, many).sum().item<double>(), 1e-9);
    }
  }
  Metric metric = RootMeanSquaredError();
  MetricState state = metric.make_state();
  metric.update(state, one, many);
  EXPECT_NEAR(metric.result(state), 0.38188130, 1e-7);
  // What Keras refuses, or computes although it means nothing.
  EXPECT_THROW(MeanSquaredError()(torch::ones({2, 2}), torch::ones({2, 3})), InvalidArgument);
  EXPECT_THROW(MeanSquaredError()(torch::ones({2}), torch::ones({2, 3, 4})), InvalidArgument);
  EXPECT_THROW(BinaryCrossentropy()(one, many), InvalidArgument);
  EXPECT_THROW(CategoricalCrossentropy()(one, many), InvalidArgument);
  EXPECT_THROW(CosineSimilarity()(one, many), InvalidArgument);
}

}  // namespace
}  // namespace cohort::more_losses_test
