// What came of a training by fit(), and whether it is what came of another one.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "cohort/cohort.h"

namespace cohort::equivalence {

inline constexpr double kClose = 1e-9;

struct Outcome {
  History history;
  NamedTensors weights, slots;
  torch::Tensor predictions;
};

// Trains a compiled model, with the first two batches for validation.
template <typename AnyModel>
Outcome outcome_of(AnyModel& model, const Dataset& data, int64_t epochs, int64_t first = 0) {
  Outcome outcome{
      .history = model.fit(
          data,
          {.epochs = epochs, .initial_epoch = first, .validation_data = data.take(2), .verbose = Verbose::kSilent})};
  outcome.weights = model.weights();
  outcome.slots = model.optimizer().state();
  outcome.predictions = model.predict(data);
  return outcome;
}

// Trains what `make` makes, with labels for targets, under a strategy; each time from the same seeds.
inline Outcome trained_under(const Strategy& strategy, const std::function<Model()>& make,
                             const std::function<Dataset()>& batches, int64_t epochs) {
  strategy.set_seed(3);
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  Model model = make();
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  return outcome_of(model, batches(), epochs);
}

inline double gap_between(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.cpu() - b.cpu()).abs().max().item<double>();
}

inline void expect_same(const NamedTensors& got, const NamedTensors& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, wanted[i].first);
    ASSERT_EQ(got[i].second.sizes(), wanted[i].second.sizes()) << got[i].first;
    EXPECT_LT(gap_between(got[i].second, wanted[i].second), kClose) << got[i].first;
  }
}

inline void expect_like(const Outcome& got, const Outcome& wanted) {
  for (const auto* name : {"loss", "val_loss", "sparse_categorical_accuracy"}) {
    const auto& values = wanted.history[name];
    ASSERT_EQ(got.history[name].size(), values.size()) << name;
    ASSERT_FALSE(values.empty()) << name;
    for (std::size_t epoch = 0; epoch < values.size(); ++epoch) {
      EXPECT_NEAR(got.history[name].at(epoch), values.at(epoch), kClose) << name << ", " << epoch;
    }
  }
  expect_same(got.weights, wanted.weights);
  expect_same(got.slots, wanted.slots);
  EXPECT_LT(gap_between(got.predictions, wanted.predictions), kClose);
}

}  // namespace cohort::equivalence
