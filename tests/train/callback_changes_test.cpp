// Callbacks that use the model while it is trained: evaluations leave the training as it is, and compile() takes effect
// with the next step.
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>
#include <set>

#include "cohort/dataset.h"
#include "cohort/error.h"
#include "cohort/train/model.h"
#include "cohort/train/more_callbacks.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::callback_changes_test {
namespace {

using testing::expect_error;

constexpr int64_t kBatches = 6;

enum class Look { kNothing, kEvaluate, kPredict, kTestOnBatch, kFailing };

torch::Tensor inputs() {
  return torch::cos(torch::arange(24 * 4, torch::kDouble)).view({24, 4});
}

Dataset data() {
  return Dataset::from_tensor_slices(inputs(), inputs().sum(1, /*keepdim=*/true)).batch(24 / kBatches);
}

void look_at(Model& model, Look look) {
  const torch::Tensor x = torch::ones({4, 4}, torch::kDouble), y = torch::zeros({4, 1}, torch::kDouble);
  const Dataset other = Dataset::from_tensor_slices(x, y).batch(2);
  switch (look) {
    case Look::kNothing:
      return;
    case Look::kEvaluate:
      model.evaluate(other, {.verbose = Verbose::kSilent});
      return;
    case Look::kPredict:
      model.predict(other);
      return;
    case Look::kTestOnBatch:
      model.test_on_batch({.x = x, .y = y});
      return;
    case Look::kFailing:
      // The second batch has another width.
      const Dataset rows = Dataset::from_tensor_slices(torch::arange(16, torch::kDouble).view({4, 4}), y);
      const Dataset torn = rows.batch(2).map([](const Example& batch) {
        const bool first = batch.x[0][0].item<double>() == 0.0;
        return first ? batch : Example{.x = torch::ones({2, 5}, torch::kDouble), .y = batch.y};
      });
      EXPECT_ANY_THROW(model.evaluate(torn, {.verbose = Verbose::kSilent}));
      EXPECT_ANY_THROW(model.predict(torn));
      EXPECT_ANY_THROW(model.test_on_batch({.x = torch::ones({2, 5}, torch::kDouble), .y = y.slice(0, 0, 2)}));
  }
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> errors;
  NamedTensors weights;
};

// Trains a model whose dropout and batch norm depend on the mode, and calls look() at the moment.
Trained train_looking(int replicas, Look look, bool at_epochs) {
  const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
  const StrategyScope scope = strategy.scope();
  torch::manual_seed(1);
  strategy.set_seed(1);
  Sequential model({Dropout(0.5), BatchNormalization(), Dense(1)}, {.dtype = torch::kDouble});
  model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = "mse", .metrics = {"mae"}});
  const CallbackPtr callback = LambdaCallback({.on_epoch_begin =
                                                   [&](const RunInfo& run) {
                                                     if (at_epochs) look_at(run.model, look);
                                                   },
                                               .on_batch_end =
                                                   [&](const RunInfo& run, const BatchLogs&) {
                                                     if (!at_epochs && run.batch == 1) look_at(run.model, look);
                                                   }});
  const History history = model.fit(data(), {.epochs = 2, .callbacks = {callback}, .verbose = Verbose::kSilent});
  return {history["loss"], history["mae"], model.weights()};
}

TEST(CallbackChangesTest, EvaluationsLeaveTheTrainingAsItIs) {
  for (const int replicas : {1, 2}) {
    const Trained alone = train_looking(replicas, Look::kNothing, false);
    for (const Look look : {Look::kEvaluate, Look::kPredict, Look::kTestOnBatch, Look::kFailing}) {
      for (const bool at_epochs : {false, true}) {
        const Trained looked = train_looking(replicas, look, at_epochs);
        SCOPED_TRACE(::testing::Message() << replicas << " replicas, look " << static_cast<int>(look) << at_epochs);
        for (std::size_t epoch = 0; epoch < 2; ++epoch) {
          EXPECT_NEAR(looked.losses[epoch], alone.losses[epoch], 1e-12);
          EXPECT_NEAR(looked.errors[epoch], alone.errors[epoch], 1e-12);
        }
        for (std::size_t i = 0; i < alone.weights.size(); ++i) {
          EXPECT_TRUE(torch::allclose(looked.weights[i].second, alone.weights[i].second, 0.0, 1e-12))
              << alone.weights[i].first;
        }
      }
    }
  }
}

// With a rate of zero the epoch's numbers are those of the same weights.
TEST(CallbackChangesTest, TrainingOnABatchLeavesTheEpochsNumbers) {
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const StrategyScope scope = strategy.scope();
    const auto errors = [&](bool trains) {
      torch::manual_seed(1);
      Sequential model({Dense(1)}, {.dtype = torch::kDouble});
      model.compile({.optimizer = SGD({.learning_rate = 0.0}), .loss = "mse", .metrics = {"mae"}});
      const Example other{.x = torch::ones({4, 4}, torch::kDouble), .y = torch::full({4, 1}, 100.0, torch::kDouble)};
      const auto train = [&](const RunInfo& run, const BatchLogs&) {
        if (!trains || run.batch != 2) return;
        EXPECT_GT(run.model.train_on_batch(other)["mae"], 50.0);
      };
      const History history = model.fit(
          data(), {.epochs = 2, .callbacks = {LambdaCallback({.on_batch_end = train})}, .verbose = Verbose::kSilent});
      return std::vector<double>{history["loss"][0], history["mae"][0], history["loss"][1], history["mae"][1]};
    };
    const std::vector<double> trained = errors(true), alone = errors(false);
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(trained[i], alone[i], 1e-12) << replicas;
  }
}

// A module of the user's, of which a part stays in evaluation mode.
struct HalfFrozenImpl : torch::nn::Module {
  HalfFrozenImpl() : first(4, 4), second(4, 1) {
    register_module("first", first);
    register_module("second", second);
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(first(x)); }
  torch::nn::Linear first, second;
};
TORCH_MODULE(HalfFrozen);

TEST(CallbackChangesTest, EveryModuleKeepsTheModeItHad) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const StrategyScope scope = strategy.scope();
  Model model([] { return HalfFrozen(); });
  model.compile({.optimizer = SGD(), .loss = "mse"});
  for (const Look look : {Look::kEvaluate, Look::kPredict, Look::kTestOnBatch, Look::kFailing}) {
    for (const bool trains : {true, false}) {
      for (const auto& copy : model.module().copies()) {
        copy->train(trains);
        copy->named_children()["first"]->train(!trains);
      }
      look_at(model, look);
      for (const auto& copy : model.module().copies()) {
        EXPECT_EQ(copy->is_training(), trains);
        EXPECT_EQ(copy->named_children()["first"]->is_training(), !trains);
        EXPECT_EQ(copy->named_children()["second"]->is_training(), trains);
      }
    }
  }
}

enum class At { kEpochBegin, kEpochEnd, kBatchBegin, kBatchEnd };

// Calls fn the second time that this moment comes.
CallbackPtr second_time(At at, std::function<void()> fn) {
  const auto call = [fn = std::move(fn), times = std::make_shared<int>(0)](auto&&...) {
    if (++*times == 2) fn();
  };
  CallbackFunctions functions;
  if (at == At::kEpochBegin) functions.on_epoch_begin = call;
  if (at == At::kEpochEnd) functions.on_epoch_end = call;
  if (at == At::kBatchBegin) functions.on_batch_begin = call;
  if (at == At::kBatchEnd) functions.on_batch_end = call;
  return LambdaCallback(functions);
}

// p = w x for x = y = 1: the error 1 - w is multiplied by 1 - 2 * rate in each step.
TEST(CallbackChangesTest, CompileTakesEffectWithTheNextStep) {
  const std::vector<std::pair<At, int>> steps_before = {
      {At::kEpochBegin, 3}, {At::kEpochEnd, 6}, {At::kBatchBegin, 1}, {At::kBatchEnd, 2}};
  for (const int replicas : {1, 2}) {
    for (const auto& [at, before] : steps_before) {
      const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
      const StrategyScope scope = strategy.scope();
      Sequential model({Dense({.units = 1, .use_bias = false, .kernel_initializer = Initializer::kZeros})},
                       {.dtype = torch::kDouble});
      const auto compile = [&](double rate) {
        model.compile({.optimizer = SGD({.learning_rate = rate}), .loss = "mse", .metrics = {"mae"}});
      };
      compile(0.05);
      const torch::Tensor one = torch::ones({12, 1}, torch::kDouble);
      const History history =
          model.fit(Dataset::from_tensor_slices(one, one).batch(4),
                    {.epochs = 3, .callbacks = {second_time(at, [&] { compile(0.1); })}, .verbose = Verbose::kSilent});
      EXPECT_EQ(history.epochs().size(), 3U);
      EXPECT_NEAR(1.0 - model.weights()[0].second.item<double>(), std::pow(0.9, before) * std::pow(0.8, 9 - before),
                  1e-12)
          << replicas << " replicas, " << before << " steps before";
      EXPECT_EQ(model.optimizer().iterations(), 9 - before) << "of the new optimizer";
    }
  }
}

// Gradual unfreezing: the first layer learns from the second epoch on.
TEST(CallbackChangesTest, ALayerIsThawedWithinATraining) {
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const StrategyScope scope = strategy.scope();
    Sequential model({Dense(3), Dense(1)}, {.dtype = torch::kDouble});
    const auto compile = [&] { model.compile({.optimizer = Adam({.learning_rate = 0.1}), .loss = "mse"}); };
    model.layers()[0].set_trainable(false);
    compile();
    std::vector<torch::Tensor> first, second;
    const CallbackPtr note = LambdaCallback({.on_epoch_end = [&](const RunInfo& run, Logs&) {
      const NamedTensors weights = run.model.weights();
      first.push_back(weights[0].second);
      second.push_back(weights[2].second);
    }});
    const CallbackPtr thaw = second_time(At::kEpochBegin, [&] {
      model.layers()[0].set_trainable(true);
      compile();
    });
    model.build({4});
    const torch::Tensor start = model.weights()[0].second;
    model.fit(data(), {.epochs = 2, .callbacks = {note, thaw}, .verbose = Verbose::kSilent});
    EXPECT_TRUE(torch::equal(first[0], start)) << "it is frozen";
    EXPECT_FALSE(torch::equal(first[1], start));
    EXPECT_FALSE(torch::equal(second[0], second[1]));
    if (replicas == 2) {
      compare_copies(model.module());
    }
  }
}

// A program that resumes begins with the first layer frozen, which was thawed by the time of the backup.
TEST(CallbackChangesTest, ABackupOfOtherParametersInTrainingIsRefused) {
  const testing::TemporaryFolder folder;
  const OneDeviceStrategy strategy("/CPU:0");
  const StrategyScope scope = strategy.scope();
  const auto train = [&](int64_t broken_in_epoch) {
    Sequential model({Dense(3), Dense(1)}, {.dtype = torch::kDouble});
    const auto compile = [&] { model.compile({.optimizer = SGD({.learning_rate = 0.01}), .loss = "mse"}); };
    model.layers()[0].set_trainable(false);
    compile();
    const CallbackPtr thaw = LambdaCallback({.on_epoch_begin = [&](const RunInfo& run) {
      if (run.epoch == broken_in_epoch) throw std::runtime_error("killed");
      if (run.epoch != 1) return;
      model.layers()[0].set_trainable(true);
      compile();
    }});
    const CallbackPtr backup = BackupAndRestore({.directory = folder.path() / "backup"});
    model.fit(data(), {.epochs = 4, .callbacks = {thaw, backup}, .verbose = Verbose::kSilent});
  };
  EXPECT_THROW(train(1), std::runtime_error);
  EXPECT_THROW(train(3), std::runtime_error) << "resumed in epoch 1, where all was as it is";
  expect_error<InvalidArgument>([&] { train(9); }, "4 parameters were in training, but 2 are");
}

}  // namespace
}  // namespace cohort::callback_changes_test
