#include "cohort/train/model_trainer.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <cmath>

#include "cohort/error.h"
#include "cohort/train/actions.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::model_trainer_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::TemporaryFolder;

constexpr int64_t kExamples = 48;

Dataset examples() {
  torch::manual_seed(11);
  return Dataset::from_tensor_slices(torch::randn({kExamples, 6}), torch::randint(0, 3, {kExamples}, torch::kLong));
}

// A run of two replicas with all that has a state: shuffled input, dropout, batch norm, momentum, averages.
struct Program {
  MirroredStrategy strategy{{.devices = cpu_devices(2)}};
  StrategyScope scope = strategy.scope();
  Sequential model = made(strategy);
  std::shared_ptr<ModelTrainer> trainer;

  static Sequential made(const Strategy& strategy) {
    torch::manual_seed(5);
    strategy.set_seed(5);
    return Sequential{Dense(8), BatchNormalization(), Dropout(0.3), Dense(3)};
  }

  explicit Program(const MovingAverageOptions& ema = {}) {
    model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
    trainer = std::make_shared<ModelTrainer>(
        model, ModelTrainerOptions{.train = examples().shuffle(kExamples, {.seed = 3}).batch(8).repeat(),
                                   .validation = examples().batch(8),
                                   .ema = ema,
                                   .verbose = Verbose::kSilent});
  }

  Controller controller(const std::filesystem::path& folder) {
    return Controller({.trainer = trainer,
                       .evaluator = trainer,
                       .steps_per_loop = 3,
                       .checkpoint_dir = folder,
                       .checkpoint_interval = 2});
  }
};

void expect_equal(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(torch::equal(a[i].second, b[i].second)) << a[i].first;
  }
}

TEST(ModelTrainerTest, ALeftRunGoesOnBitForBit) {
  const TemporaryFolder folder;
  const MovingAverageOptions ema{.average_decay = 0.9};
  NamedTensors wanted;
  Logs evaluation;
  {
    Program run(ema);
    evaluation = run.controller(folder / "whole").train_and_evaluate(40, kAllSteps, 7);
    wanted = run.model.weights();
  }
  for (const int64_t cut : {3, 7, 9, 14, 30}) {
    const auto parts = folder / ("cut" + std::to_string(cut));
    {
      // Left without a word after the evaluation or the loop of step `cut`.
      Program run(ema);
      int64_t made = 0;
      struct Killed {};
      const auto kill = [&](const ActionInfo& info) {
        made = info.step;
        if (made >= cut) throw Killed();
      };
      Controller controller({.trainer = run.trainer,
                             .evaluator = run.trainer,
                             .train_actions = {kill},
                             .eval_actions = {kill},
                             .steps_per_loop = 3,
                             .checkpoint_dir = parts,
                             .checkpoint_interval = 2});
      EXPECT_THROW(controller.train_and_evaluate(40, kAllSteps, 7), Killed);
    }
    Program run(ema);
    const Logs logs = run.controller(parts).train_and_evaluate(40, kAllSteps, 7);
    expect_equal(run.model.weights(), wanted);
    EXPECT_EQ(logs["loss"], evaluation["loss"]) << "cut at " << cut;
  }
}

TEST(ModelTrainerTest, IsFitsEqual) {
  NamedTensors fitted;
  {
    Program run;
    run.model.fit(examples().shuffle(kExamples, {.seed = 3}).batch(8), {.epochs = 4, .verbose = Verbose::kSilent});
    fitted = run.model.weights();
  }
  Program run;
  const Logs logs = run.trainer->train(4 * 6);
  expect_equal(run.model.weights(), fitted);
  EXPECT_EQ(run.trainer->global_step(), 24);
  EXPECT_EQ(logs["learning_rate"], 0.1);
  EXPECT_TRUE(logs.contains("accuracy"));
}

TEST(ModelTrainerTest, AveragesFollowTheirFormulaAndAreWhatIsEvaluated) {
  Program run({.average_decay = 0.8, .start_step = 2});
  std::map<std::string, torch::Tensor> average;
  for (int64_t step = 1; step <= 12; ++step) {
    run.trainer->train(1);
    const auto since = static_cast<double>(step - 2);
    const double decay = step < 2 ? 0.0 : std::min(0.8, (1.0 + since) / (10.0 + since));
    for (const auto& [name, tensor] : run.model.weights()) {
      if (name.find("running") != std::string::npos || name.find("num_batches") != std::string::npos) continue;
      average[name] = step == 1 ? tensor.clone() : average[name] * decay + tensor * (1.0 - decay);
    }
  }
  const NamedTensors before = run.model.weights();
  const Logs evaluated = run.trainer->evaluate(kAllSteps);
  run.trainer->with_averages([&] {
    for (const auto& [name, tensor] : run.model.weights()) {
      EXPECT_TRUE(!average.contains(name) || torch::allclose(tensor, average[name], 1e-5, 1e-6)) << name;
    }
    EXPECT_EQ(run.model.evaluate(examples().batch(8), {.verbose = Verbose::kSilent})["loss"], evaluated["loss"]);
  });
  for (const auto& [name, tensor] : run.model.weights()) {
    for (const auto& [other, value] : before) {
      EXPECT_TRUE(name != other || !average.contains(name) || torch::equal(tensor, value)) << name;
    }
  }
}

TEST(ModelTrainerTest, APreemptionEndsTheLoopAfterAStep) {
  const TemporaryFolder folder;
  Program run;
  int64_t asked = 0;
  Controller controller(
      {.trainer = run.trainer, .steps_per_loop = 100, .checkpoint_dir = folder / "run", .preempted = [&] {
         return ++asked > 4;
       }});
  expect_error<Preempted>([&] { controller.train(50); }, "training was left after step 5, which is saved");
  EXPECT_EQ(read_checkpoint(folder / "run/ckpt-5").step, 5);
}

TEST(ModelTrainerTest, APreemptionEndsAnEvaluationToo) {
  const TemporaryFolder folder;
  NamedTensors wanted;
  Logs evaluation;
  {
    Program run;
    evaluation = run.controller(folder / "whole").train_and_evaluate(12, kAllSteps, 5);
    wanted = run.model.weights();
  }
  {
    // Told at the second batch of the evaluation after step 5.
    Program run;
    int64_t asked = 0;
    Controller controller({.trainer = run.trainer,
                           .evaluator = run.trainer,
                           .steps_per_loop = 3,
                           .checkpoint_dir = folder / "cut",
                           .preempted = [&] { return ++asked > 5 + 1; }});
    expect_error<Preempted>([&] { controller.train_and_evaluate(12, kAllSteps, 5); },
                            "training was left after step 5, which is saved");
  }
  Program run;
  std::vector<int64_t> evaluated;
  Controller controller({.trainer = run.trainer,
                         .evaluator = run.trainer,
                         .eval_actions = {[&](const ActionInfo& info) { evaluated.push_back(info.step); }},
                         .steps_per_loop = 3,
                         .checkpoint_dir = folder / "cut"});
  EXPECT_EQ(controller.train_and_evaluate(12, kAllSteps, 5)["loss"], evaluation["loss"]);
  EXPECT_EQ(evaluated, (std::vector<int64_t>{5, 10, 12}));
  expect_equal(run.model.weights(), wanted);
}

// The first layer is frozen for two steps.
struct Thawing {
  MirroredStrategy strategy{{.devices = cpu_devices(2)}};
  StrategyScope scope = strategy.scope();
  Sequential model = made(strategy);
  std::vector<std::size_t> begun;
  std::shared_ptr<ModelTrainer> trainer;

  static Sequential made(const Strategy& strategy) {
    torch::manual_seed(5);
    strategy.set_seed(5);
    Sequential model{Dense(8), Dense(3)};
    model.build({6});
    return model;
  }

  explicit Thawing(const torch::Tensor& x) {
    compile(0);
    const torch::Tensor y = torch::arange(x.size(0)) % 3;
    trainer =
        std::make_shared<ModelTrainer>(model, ModelTrainerOptions{.train = Dataset::from_tensor_slices(x, y).batch(8),
                                                                  .stages = {2},
                                                                  .begin_stage =
                                                                      [this](std::size_t stage) {
                                                                        begun.push_back(stage);
                                                                        compile(stage);
                                                                      },
                                                                  .verbose = Verbose::kSilent});
  }

  void compile(std::size_t stage) {
    model.layers()[0].set_trainable(stage > 0);
    model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  }

  Controller controller(const std::filesystem::path& folder) {
    return Controller({.trainer = trainer,
                       .train_actions = {Recovery({.max_trials = 3})},
                       .steps_per_loop = 1,
                       .checkpoint_dir = folder,
                       .checkpoint_interval = 2});
  }
};

torch::Tensor rows_for_steps(int64_t steps) {
  torch::manual_seed(11);
  return torch::randn({8 * steps, 6});
}

NamedTensors undisturbed(const torch::Tensor& rows) {
  Thawing run(rows);
  run.trainer->train(5);
  EXPECT_EQ(run.trainer->global_step(), 5);
  return run.model.weights();
}

TEST(ModelTrainerTest, AStageBeginsAfterItsStep) {
  const NamedTensors wanted = undisturbed(rows_for_steps(5));  // within an inner loop
  Thawing run(rows_for_steps(5));
  const NamedTensors at_first = run.model.weights();
  run.trainer->train(2);
  EXPECT_TRUE(run.begun.empty());
  const NamedTensors frozen = run.model.weights();
  EXPECT_TRUE(torch::equal(frozen[0].second, at_first[0].second));
  EXPECT_FALSE(torch::equal(frozen[2].second, at_first[2].second));
  run.trainer->train(3);
  EXPECT_EQ(run.begun, std::vector<std::size_t>{1});
  EXPECT_FALSE(torch::equal(run.model.weights()[0].second, frozen[0].second));
  expect_equal(run.model.weights(), wanted);
}

TEST(ModelTrainerTest, ARunGoesOnInTheStageOfItsCheckpoint) {
  const TemporaryFolder folder;
  const NamedTensors wanted = undisturbed(rows_for_steps(5));
  for (const int64_t cut : {1, 2, 3, 4}) {
    const auto parts = folder / ("cut" + std::to_string(cut));
    Thawing(rows_for_steps(5)).controller(parts).train(cut);
    Thawing run(rows_for_steps(5));
    run.controller(parts).train(5);
    expect_equal(run.model.weights(), wanted);
    EXPECT_EQ(run.begun, std::vector<std::size_t>{1}) << "cut at " << cut;
  }
}

// The newest checkpoint, of the very step of the thawing, is of the stage before.
TEST(ModelTrainerTest, ABlowUpRightAfterTheThawingIsRecoveredFrom) {
  const TemporaryFolder folder;
  const torch::Tensor good = rows_for_steps(5);
  const NamedTensors wanted = undisturbed(good);
  // Three bad batches, after which the others have the targets that they had.
  const torch::Tensor bad = torch::full({3 * 8, 6}, std::nan(""));
  Thawing run(torch::cat({good.slice(0, 0, 16), bad, good.slice(0, 16)}));
  run.controller(folder / "run").train(5);
  EXPECT_EQ(run.begun, (std::vector<std::size_t>{1, 0, 1, 0, 1, 0, 1}));
  expect_equal(run.model.weights(), wanted);
}

// The chief alone reads the checkpoint; the others' averages are its.
TEST(ModelTrainerTest, EveryWorkerGoesOnWithTheAverages) {
  const TemporaryFolder folder;
  const Dataset data = examples().batch(8).repeat();
  const auto averages_after = [&](int64_t steps) {
    std::array<NamedTensors, 2> averages;
    testing::with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
      const StrategyScope scope = strategy.scope();
      Sequential model{Dense(8), BatchNormalization(), Dense(3)};
      model.compile(
          {.optimizer = SGD({.learning_rate = 0.1}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
      const auto trainer = std::make_shared<ModelTrainer>(
          model, ModelTrainerOptions{.train = data, .ema = {.average_decay = 0.9}, .verbose = Verbose::kSilent});
      Controller({.trainer = trainer, .steps_per_loop = 4, .checkpoint_dir = folder / "run"}).train(steps);
      trainer->with_averages([&] { averages.at(static_cast<std::size_t>(strategy.worker_rank())) = model.weights(); });
    });
    return averages;
  };
  const auto before = averages_after(5);
  const auto restored = averages_after(5);
  expect_equal(restored[0], before[0]);
  expect_equal(restored[1], before[0]);
  const auto after = averages_after(9);
  expect_equal(after[1], after[0]);
  EXPECT_FALSE(torch::equal(after[0].front().second, before[0].front().second));
}

TEST(ModelTrainerTest, RefusesWhatItCannotDo) {
  Program run;
  expect_error<InvalidArgument>([&] { ModelTrainer(run.model, {}); }, "there is no data, wanted train or validation");
  ModelTrainer short_one(run.model, {.train = examples().batch(8), .verbose = Verbose::kSilent});
  expect_error<InvalidArgument>([&] { short_one.train(7); }, "the data ran out after step 6; call repeat() on it");
  expect_error<FailedPrecondition>([&] { short_one.evaluate(kAllSteps); }, "there is no validation data");
  expect_error<InvalidArgument>(
      [&] { ModelTrainer(run.model, {.train = examples().batch(8), .ema = {.average_decay = 1.0}}); },
      "average_decay is 1, wanted 0 to less than 1");
  expect_error<InvalidArgument>([&] { ModelTrainer(run.model, {.train = examples().batch(8), .stages = {3}}); },
                                "begin_stage is not set");
  expect_error<InvalidArgument>(
      [&] {
        ModelTrainer(run.model, {.train = examples().batch(8), .stages = {3, 3}, .begin_stage = [](auto) {}});
      },
      "stages is [3, 3], wanted steps from 1 on, each beyond the one before");
}

}  // namespace
}  // namespace cohort::model_trainer_test
