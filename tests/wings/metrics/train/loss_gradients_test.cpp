// Gradients of losses: as differences of their values say, and finite where the losses have corners and limits.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "cohort/train/losses.h"

namespace cohort::loss_gradients_test {
namespace {

torch::Tensor gradient(const Loss& loss, const torch::Tensor& y, const torch::Tensor& prediction) {
  const torch::Tensor p = prediction.clone().requires_grad_();
  loss(y, p).backward();
  return p.grad();
}

void expect_differences(const Loss& loss, const torch::Tensor& y, const torch::Tensor& prediction) {
  const torch::Tensor found = gradient(loss, y, prediction).reshape({-1});
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < prediction.numel(); ++i) {
    torch::Tensor more = prediction.clone(), less = prediction.clone();
    more.view({-1})[i] += kStep;
    less.view({-1})[i] -= kStep;
    const double wanted = (loss(y, more) - loss(y, less)).item<double>() / (2.0 * kStep);
    EXPECT_NEAR(found[i].item<double>(), wanted, 1e-6 * std::max(1.0, std::abs(wanted))) << loss.name() << " at " << i;
  }
}

TEST(LossGradientsTest, AreDifferences) {
  torch::manual_seed(11);
  const auto drawn = [](std::vector<int64_t> shape) { return torch::rand(shape, torch::kDouble) * 0.8 + 0.1; };
  const torch::Tensor p = drawn({4, 3}), y = drawn({4, 3});
  const torch::Tensor labels = torch::tensor({2, 0, 1, 2}, torch::kLong);
  const torch::Tensor hot = torch::one_hot(labels, 3).to(torch::kDouble);
  for (const Loss& loss : {MeanAbsolutePercentageError(), MeanSquaredLogarithmicError(), LogCosh(), Poisson(),
                           KLDivergence(), CosineSimilarity(), Huber({.delta = 0.2}), Tversky({.alpha = 0.2})}) {
    expect_differences(loss, y, p);
  }
  for (const Loss& loss :
       {BinaryFocalCrossentropy(), BinaryFocalCrossentropy({.from_logits = true, .label_smoothing = 0.1}),
        CategoricalFocalCrossentropy({.label_smoothing = 0.1}), CategoricalFocalCrossentropy({.from_logits = true}),
        Hinge(), SquaredHinge(), CategoricalHinge(), Dice(), Dice({.axis = {1}})}) {
    expect_differences(loss, hot, p);
  }
  expect_differences(CategoricalGeneralizedCrossEntropy({.q = 0.3}), labels, p);
  expect_differences(SparseCategoricalCrossentropy({.from_logits = true, .ignore_class = 0}), labels, p);
  expect_differences(Circle({.gamma = 2.0}), labels, p);
  expect_differences(CTC(), torch::tensor({1, 2, 2, 0, 1, 0, 2, 1}, torch::kLong).view({4, 2}), drawn({4, 5, 3}));
}

// Where a loss has a corner or a limit its gradient is a number, 0 on the flat side.
TEST(LossGradientsTest, AreFiniteAtCorners) {
  const torch::Tensor zero = torch::zeros({2, 3}, torch::kDouble), one = torch::ones({2, 3}, torch::kDouble);
  for (const Loss& loss : {MeanAbsoluteError(), MeanAbsolutePercentageError(), MeanSquaredLogarithmicError(),
                           CosineSimilarity(), KLDivergence(), Poisson(), BinaryFocalCrossentropy(), Dice(), Hinge(),
                           SquaredHinge(), CategoricalHinge(), LogCosh(), Huber(), CategoricalCrossentropy()}) {
    for (const torch::Tensor& y : {zero, one}) {
      for (const torch::Tensor& p : {zero, one, one * 500.0, one * -500.0}) {
        if (loss.name() == "poisson" && p[0][0].item<double>() < 0.0) continue;  // the logarithm of a negative number
        const bool all_is_zero =
            (loss.name() == "categorical_crossentropy" || loss.name() == "dice") && p.sum().item<double>() <= 0.0;
        if (all_is_zero) continue;  // no probabilities
        EXPECT_TRUE(loss(y, p).isfinite().item<bool>()) << loss.name() << y[0][0] << p[0][0];
        EXPECT_TRUE(gradient(loss, y, p).isfinite().all().item<bool>()) << loss.name() << y[0][0] << p[0][0];
      }
    }
  }
  EXPECT_EQ(gradient(Hinge(), one, one * 2.0).abs().max().item<double>(), 0.0);
}

// An example that is the only one of its class has nothing to be drawn to: it does not count.
TEST(LossGradientsTest, CircleWithoutPositives) {
  const torch::Tensor p = torch::eye(3, torch::kDouble);
  const torch::Tensor alone = torch::tensor({0, 1, 2}, torch::kLong);
  EXPECT_EQ(Circle()(alone, p).item<double>(), 0.0);
  EXPECT_EQ(gradient(Circle(), alone, p).abs().max().item<double>(), 0.0);
  const torch::Tensor pair = torch::tensor({0, 0, 2}, torch::kLong);
  EXPECT_GT(Circle()(pair, p).item<double>(), 0.0);
  EXPECT_TRUE(gradient(Circle(), pair, p).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace cohort::loss_gradients_test
