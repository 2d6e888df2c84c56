// fit(), evaluate() and predict() by several workers: all come to the same numbers and end together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::multi_worker_fit_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::with_workers;

constexpr int64_t kRows = 50;

Example columns() {
  const torch::Tensor x = torch::sin(torch::arange(kRows * 3, torch::kFloat)).view({kRows, 3});
  return {.x = x, .y = (x.sum(1) > 0).to(torch::kLong)};
}

Dataset batches() {
  return Dataset::from_tensor_slices(columns()).batch(12);
}

// Threads share LibTorch's generator; the chief's values count.
Sequential model() {
  Sequential made{Dense(5, Activation::kRelu), Dense(2)};
  made.compile({.optimizer = Adam({.learning_rate = 0.05}),
                .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                .metrics = {SparseCategoricalAccuracy()}});
  return made;
}

FitOptions quiet(int64_t epochs, std::vector<CallbackPtr> callbacks = {}) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

// The monitored number is another one on each worker: each alone would stop, restore and reduce at another epoch.
TEST(MultiWorkerFit, TheChiefsNumberDecidesForAll) {
  const std::array<std::vector<double>, 2> numbers = {{{5, 4, 6, 7, 8, 9}, {5, 4, 3, 2, 1, 0}}};
  std::array<NamedTensors, 2> weights;
  std::array<std::vector<double>, 2> rates, scheduled;
  std::array<std::vector<NamedTensors>, 2> after_epochs;
  with_workers({.workers = 2, .replicas = 1}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto rank = static_cast<std::size_t>(strategy.worker_rank());
    const auto scope = strategy.scope();
    Sequential net = model();
    const CallbackPtr tell = LambdaCallback({.on_epoch_end = [&](const RunInfo& run, Logs& logs) {
      logs.set("val_loss", numbers.at(rank).at(static_cast<std::size_t>(run.epoch)));
      after_epochs.at(rank).push_back(run.model.weights());
    }});
    const History history =
        net.fit(batches(), quiet(6, {tell, ReduceLROnPlateau({.factor = 0.5, .patience = 1}),
                                     EarlyStopping({.patience = 3, .restore_best_weights = true})}));
    rates.at(rank) = history["learning_rate"];
    weights.at(rank) = net.weights();
    scheduled.at(rank) = net.fit(
        batches(),
        quiet(2, {LearningRateScheduler([&](int64_t, double) { return rank == 0 ? 0.01 : 0.02; })}))["learning_rate"];
  });
  EXPECT_EQ(rates[0], (std::vector<double>{0.05, 0.05, 0.05, 0.025, 0.0125}));
  EXPECT_EQ(rates[1], rates[0]);
  ASSERT_EQ(after_epochs[0].size(), 5U);
  for (std::size_t i = 0; i < weights[0].size(); ++i) {
    EXPECT_TRUE(torch::equal(weights[0][i].second, weights[1][i].second)) << weights[0][i].first;
    EXPECT_TRUE(torch::equal(weights[0][i].second, after_epochs[0][1][i].second)) << "the chief's best epoch";
  }
  EXPECT_EQ(scheduled[0], (std::vector<double>{0.01, 0.01}));
  EXPECT_EQ(scheduled[1], scheduled[0]);
}

// Also where the replicas share the parameters.
class MultiWorkerFitOfStage : public ::testing::TestWithParam<int> {};

TEST_P(MultiWorkerFitOfStage, AllSeeTheSameNumbers) {
  std::array<Logs, 2> logs;
  std::array<torch::Tensor, 2> predictions;
  std::array<NamedTensors, 2> weights;
  std::array<std::vector<double>, 2> losses;
  testing::WorkersOptions group{.workers = 2, .replicas = 2};
  group.sharding.stage = GetParam();
  if (GetParam() == 3) group.sharding.min_unit_bytes = 0;
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto rank = static_cast<std::size_t>(strategy.worker_rank());
    const auto scope = strategy.scope();
    Sequential net = model();
    losses[rank] = net.fit(batches(), quiet(3))["loss"];
    logs[rank] = net.evaluate(batches(), {.verbose = Verbose::kSilent});
    predictions[rank] = net.predict(batches());
    weights[rank] = net.weights();
    EXPECT_EQ(net.optimizer().iterations(), 3 * 5);
  });
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_LT(losses[0].back(), losses[0].front());
  EXPECT_EQ(logs[0]["loss"], logs[1]["loss"]);
  EXPECT_EQ(predictions[0].size(0), kRows);
  EXPECT_TRUE(torch::equal(predictions[0], predictions[1]));

  Sequential alone = model();
  alone.build({3});
  alone.set_weights(weights[1]);
  // A product of other rows beside an example's may be rounded in another way.
  EXPECT_TRUE(torch::allclose(alone.predict(batches()), predictions[1], 1e-4, 1e-5)) << "in the order of the examples";
}

INSTANTIATE_TEST_SUITE_P(All, MultiWorkerFitOfStage, ::testing::Values(0, 3));

TEST(MultiWorkerFit, ABatchIsSplitAmongAllReplicas) {
  const Example batch = columns().rows(0, 11);
  NamedTensors first;  // weights
  torch::Tensor together;
  with_workers({.workers = 2, .replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    Sequential net = model();
    net.build({3});
    const NamedTensors before = net.weights();
    net.train_on_batch(batch);
    net.train_on_batch(batch);
    const torch::Tensor predictions = net.predict(batches());
    if (strategy.worker_rank() == 0) return;
    first = before;
    together = predictions;
  });
  Sequential alone = model();
  alone.build({3});
  alone.set_weights(first);
  alone.train_on_batch(batch);
  alone.train_on_batch(batch);
  EXPECT_TRUE(torch::allclose(alone.predict(batches()), together, 1e-4, 1e-5));
}

TEST(MultiWorkerFit, WhatOneWorkerStopsEndsForAll) {
  for (const int64_t steps_per_epoch : {0, 7}) {
    std::array<int64_t, 2> steps{};
    with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      Sequential net = model();
      const auto stop = LambdaCallback({.on_batch_end = [&](const RunInfo& run, const BatchLogs&) {
        if (strategy.worker_rank() == 1 && run.step == 8) run.model.stop_training();
      }});
      FitOptions options = quiet(50, {stop});
      options.steps_per_epoch = steps_per_epoch;
      net.fit(steps_per_epoch > 0 ? batches().repeat() : batches(), options);
      steps[static_cast<std::size_t>(strategy.worker_rank())] = net.optimizer().iterations();
    });
    EXPECT_EQ(steps[0], 9) << "the step that was agreed on already is made";
    EXPECT_EQ(steps[1], 9);
  }
}

TEST(MultiWorkerFit, AnEpochsEndIsTheEndWhereItIsDecidedThere) {
  for (const int64_t steps_per_epoch : {0, 4}) {
    std::array<std::size_t, 2> epochs{};
    with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
      const auto scope = strategy.scope();
      Sequential net = model();
      FitOptions options = quiet(50, {EarlyStopping({.monitor = "loss", .min_delta = 100.0, .patience = 2})});
      options.steps_per_epoch = steps_per_epoch;
      const History history = net.fit(steps_per_epoch > 0 ? batches().repeat() : batches(), options);
      epochs[static_cast<std::size_t>(strategy.worker_rank())] = history.epochs().size();
    });
    EXPECT_EQ(epochs[0], 3U);
    EXPECT_EQ(epochs[1], 3U);
  }
}

TEST(MultiWorkerFit, TheChiefWritesAndReadsTheFiles) {
  const testing::TemporaryFolder folder;
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const bool chief = strategy.worker_rank() == 0;
    const auto scope = strategy.scope();
    Sequential net = model();
    net.fit(batches(), quiet(1));
    const auto file = folder.path() / (chief ? "chief.safetensors" : "other.safetensors");
    net.save_weights(file, {{"note", "mine"}});
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "chief.safetensors"));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "other.safetensors"));

    const NamedTensors before = net.weights();
    net.fit(batches(), quiet(1));
    EXPECT_EQ(net.load_weights(file).at("note"), "mine");
    const NamedTensors after = net.weights();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(torch::equal(before[i].second, after[i].second));

    const auto nowhere = folder.path() / "nowhere" / "w.safetensors";
    if (chief) {
      EXPECT_THAT(error_of<NotFound>([&] { net.save_weights(nowhere); }), HasSubstr("nowhere"));
    } else {
      EXPECT_THAT(error_of<Unavailable>([&] { net.save_weights(nowhere); }),
                  HasSubstr("save_weights failed on worker 0"));
    }
  });
}

}  // namespace
}  // namespace cohort::multi_worker_fit_test
