// Recommenders on clicks that are computed, their training, and what it has to come to.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "cohort/cohort.h"
#include "cohort/models/layouts.h"
#include "cohort/models/zoo.h"
#include "tests/equivalence/outcomes.h"

namespace cohort::equivalence::recommender_runs {

using models::DlrmOptions;

inline DlrmOptions small() {
  return {
      .num_dense_features = 3, .vocab_sizes = {7, 5, 9}, .embedding_dim = 4, .bottom_mlp = {6, 4}, .top_mlp = {5, 1}};
}

// Sizes that 2 and 3 replicas divide.
inline DlrmOptions divisible() {
  return {.num_dense_features = 3,
          .vocab_sizes = {6, 12, 6},
          .embedding_dim = 6,
          .bottom_mlp = {12, 6},
          .top_mlp = {6, 4, 1}};
}

inline LayoutMap layout_of(const layouts::RecommenderLayoutOptions& cuts) {
  return layouts::recommender(divisible(), "model", cuts);
}

// The tasks of a cluster are threads, which would draw from LibTorch's generator in any order.
inline std::shared_ptr<models::NamedModule> fixed(const DlrmOptions& options) {
  auto made = models::dlrm(options);
  made->to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  double first = 1.0;
  for (torch::Tensor& each : made->parameters()) {
    each.copy_(torch::cos(torch::arange(each.numel(), torch::kDouble) * 1.7 + first).view(each.sizes()) * 0.5);
    first += 1.0;
  }
  return made;
}

inline Example some_clicks(int64_t count) {
  const torch::Tensor numbers = torch::arange(count * 3, torch::kDouble).view({count, 3});
  const torch::Tensor categories = (numbers * 7 + numbers.square()).to(torch::kLong).remainder(5);
  return {.y = torch::sin(numbers.sum(1)).gt(0).to(torch::kDouble),
          .inputs = {{"dense_features", torch::sin(numbers)}, {"sparse_features", categories}}};
}

struct Learned {
  NamedTensors weights, slots;
  std::vector<double> losses;
  Logs evaluation;
};

inline Model compiled(const Optimizer& rule, const DlrmOptions& options = small()) {
  Model model([options] { return fixed(options); }, "dlrm");
  model.compile(
      {.optimizer = rule, .loss = BinaryCrossentropy({.from_logits = true}), .metrics = {AUC({.from_logits = true})}});
  return model;
}

inline Learned fitted(Model& model, int64_t count = 39) {
  const Dataset data = Dataset::from_tensor_slices(some_clicks(count)).shuffle(20, {.seed = 3}).batch(8);
  const History history = model.fit(data, {.epochs = 4, .verbose = Verbose::kSilent});
  return {.weights = model.weights(),
          .slots = model.optimizer().state(),
          .losses = history["loss"],
          .evaluation = model.evaluate(data, {.verbose = Verbose::kSilent})};
}

inline Learned under(const Strategy& strategy, const Optimizer& rule) {
  const auto scope = strategy.scope();
  Model model = compiled(rule);
  return fitted(model);
}

// 20 steps of Adam; the last batch of a pass has one example, which leaves a share empty.
inline Learned in_parts(const Strategy& strategy) {
  const auto scope = strategy.scope();
  Model model = compiled(Adam({.learning_rate = 0.02}), divisible());
  return fitted(model, 4 * 8 + 1);
}

inline void expect_like(const Learned& got, const Learned& wanted) {
  expect_same(got.weights, wanted.weights);
  expect_same(got.slots, wanted.slots);
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) EXPECT_NEAR(got.losses[i], wanted.losses[i], kClose);
  for (const auto& [name, value] : wanted.evaluation) EXPECT_NEAR(got.evaluation[name], value, kClose) << name;
}

}  // namespace cohort::equivalence::recommender_runs
