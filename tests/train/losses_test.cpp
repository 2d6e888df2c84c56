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

namespace cohort::losses_test {
namespace {

namespace F = torch::nn::functional;

using namespace loss_values;

// Examples of Keras' documentation.
TEST(SparseCategoricalCrossentropyTest, Probabilities) {
  const Loss loss = SparseCategoricalCrossentropy();
  const torch::Tensor y = torch::tensor({1, 2}, torch::kLong);
  const torch::Tensor p = doubles({0.05, 0.95, 0, 0.1, 0.8, 0.1}, {2, 3});
  expect_values(loss.per_example(y, p), {-std::log(0.95), -std::log(0.1)}, 1e-6);
  expect_values(loss(y, p), {1.177}, 1e-3);
  expect_consistent(loss, y, doubles({0.05, 0.9, 0.05, 0.1, 0.8, 0.1}, {2, 3}));
}

TEST(SparseCategoricalCrossentropyTest, LogitsAreStable) {
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  const torch::Tensor y = torch::tensor({0, 1}, torch::kInt);
  expect_values(loss.per_example(y, doubles({1000, 0, 1000, 0}, {2, 2})), {0.0, 1000.0});
  torch::manual_seed(1);
  const torch::Tensor logits = torch::randn({4, 5}, torch::kDouble), labels = torch::tensor({4, 0, 2, 2}, torch::kLong);
  expect_values(loss(labels, logits), {F::cross_entropy(logits, labels).item<double>()});
  expect_values(loss(labels.unsqueeze(1), logits), {F::cross_entropy(logits, labels).item<double>()});
  expect_consistent(loss, labels, logits);
}

TEST(SparseCategoricalCrossentropyTest, AverageOverPositions) {
  torch::manual_seed(2);
  const torch::Tensor logits = torch::randn({2, 3, 5}, torch::kDouble);  // [batch, time, classes]
  const torch::Tensor labels = torch::randint(5, {2, 3}, torch::kLong);
  const Loss last = SparseCategoricalCrossentropy({.from_logits = true});
  const torch::Tensor wanted =
      F::cross_entropy(logits.transpose(1, 2), labels, F::CrossEntropyFuncOptions().reduction(torch::kNone));
  expect_values(last.per_example(labels, logits), {wanted[0].mean().item<double>(), wanted[1].mean().item<double>()});
  expect_consistent(last, labels, logits);
  const Loss first = SparseCategoricalCrossentropy({.from_logits = true, .axis = 1});
  expect_values(first(labels, logits.transpose(1, 2)), {wanted.mean().item<double>()});
  // A weight a position.
  const torch::Tensor mask = doubles({1, 0, 1, 1, 1, 0}, {2, 3});
  expect_values(last.sum(labels, logits, mask), {(wanted * mask).sum().item<double>() / 3});
}

TEST(SparseCategoricalCrossentropyTest, RefusesWhatDoesNotFit) {
  const Loss loss = SparseCategoricalCrossentropy({.from_logits = true});
  const torch::Tensor logits = torch::zeros({2, 3});
  expect_invalid(
      [&] {
        loss.sum(torch::tensor({0, 3}, torch::kLong), logits);
      },
      "labels from 0 to 3, but the prediction has 3");
  expect_invalid([&] { loss.sum(torch::tensor({0, -1}, torch::kLong), logits); }, "labels from -1 to 0");
  expect_invalid([&] { loss.sum(torch::tensor({0.0, 1.0}), logits); }, "wanted integers");
  expect_invalid([&] { loss.sum(torch::zeros({2, 3}, torch::kLong), logits); }, "the same without the classes");
  expect_invalid([&] { loss.sum(torch::zeros({3}, torch::kLong), logits); }, "the batch sizes differ");
  expect_invalid([&] { loss.sum({}, logits); }, "no target y");
  expect_invalid([&] { loss.sum(torch::zeros({2}, torch::kLong), logits, torch::ones({3})); },
                 "the weight has shape [3]");
}

TEST(CategoricalCrossentropyTest, IsTheSparseOneWithOneHot) {
  torch::manual_seed(3);
  const torch::Tensor logits = torch::randn({4, 5}, torch::kDouble), labels = torch::tensor({4, 0, 2, 2}, torch::kLong);
  const torch::Tensor hot = torch::one_hot(labels, 5);
  const Loss loss = CategoricalCrossentropy({.from_logits = true});
  expect_values(loss(hot, logits), {F::cross_entropy(logits, labels).item<double>()});
  expect_values(CategoricalCrossentropy()(hot, logits.softmax(1) * 3),
                {F::cross_entropy(logits, labels).item<double>()}, 1e-6);
  expect_consistent(loss, hot, logits);
  expect_consistent(CategoricalCrossentropy(), hot, logits.softmax(1));
}

TEST(CategoricalCrossentropyTest, SmoothsLabels) {
  torch::manual_seed(4);
  const torch::Tensor logits = torch::randn({4, 5}, torch::kDouble), labels = torch::tensor({4, 0, 2, 2}, torch::kLong);
  const Loss loss = CategoricalCrossentropy({.from_logits = true, .label_smoothing = 0.1});
  const torch::Tensor wanted = F::cross_entropy(logits, labels, F::CrossEntropyFuncOptions().label_smoothing(0.1));
  expect_values(loss(torch::one_hot(labels, 5), logits), {wanted.item<double>()});
  expect_invalid([] { CategoricalCrossentropy({.label_smoothing = 1.5}); },
                 "label_smoothing must be in [0, 1], got 1.5");
  expect_invalid([&] { loss.sum(labels, logits); }, "the target has shape [4]");
}

TEST(BinaryCrossentropyTest, MatchesKerasExamples) {
  const torch::Tensor y = doubles({0, 1, 0, 0}, {2, 2});
  const torch::Tensor logits = doubles({-18.6, 0.51, 2.94, -12.8}, {2, 2});
  const Loss loss = BinaryCrossentropy({.from_logits = true});
  expect_values(loss(y, logits), {0.865}, 1e-3);
  expect_values(loss(y, logits, torch::tensor({0.8, 0.2}, torch::kDouble)), {0.243}, 1e-3);
  expect_consistent(loss, y, logits);
  expect_values(BinaryCrossentropy()(y, doubles({0.6, 0.3, 0.2, 0.8}, {2, 2})), {0.988}, 1e-3);
  // Certain and wrong: -log(1e-7).
  expect_values(BinaryCrossentropy()(torch::tensor({1}), doubles({0.0}, {1})), {-std::log(1e-7)}, 1e-6);
}

TEST(BinaryCrossentropyTest, SmoothsAndFitsTargets) {
  const Loss loss = BinaryCrossentropy({.label_smoothing = 0.2});
  const torch::Tensor y = torch::tensor({1, 0}, torch::kInt), p = doubles({0.7, 0.4}, {2, 1});
  expect_values(loss.per_example(y, p),
                {-0.9 * std::log(0.7) - 0.1 * std::log(0.3), -0.1 * std::log(0.4) - 0.9 * std::log(0.6)});
  expect_values(loss(y.unsqueeze(1), p.squeeze(1)), {loss(y, p).item<double>()});
  expect_invalid([&] { loss.sum(torch::zeros({2, 3}), p); }, "wanted the same");
}

TEST(UserLossTest, IsAFunction) {
  const Loss loss("cubes", [](const torch::Tensor& y, const torch::Tensor& p) { return (y - p).abs().pow(3); });
  expect_values(loss.per_example(doubles({0, 0, 0, 0}, {2, 2}), doubles({1, 1, 2, 0}, {2, 2})), {1.0, 4.0});
  expect_consistent(loss, doubles({0, 0, 0, 0}, {2, 2}), doubles({1, 1, 2, 0}, {2, 2}));
  EXPECT_EQ(loss.name(), "cubes");
  const Loss reduced("reduced", [](const torch::Tensor& y, const torch::Tensor& p) { return (y - p).sum(); });
  expect_invalid([&] { reduced.sum(torch::zeros(2), torch::zeros(2)); }, "do not reduce it");
}

}  // namespace
}  // namespace cohort::losses_test
