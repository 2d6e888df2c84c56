// Runs that are interrupted and go on: the same bits as those that were not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <csignal>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::backup_test {
namespace {

using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::with_workers;

constexpr int64_t kRows = 100;

Dataset batches() {
  const torch::Tensor x = torch::sin(torch::arange(kRows * 4, torch::kFloat)).view({kRows, 4});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong))
      .shuffle(30, {.seed = 3})
      .batch(12);  // 9 a pass
}

struct Interrupted : std::exception {};

// Everything that has a state: batch norm, dropout, Adam with a schedule.
Sequential model(int64_t accumulate_steps = 1) {
  Sequential made{Dense(8), BatchNormalization(), Activation(Activation::kRelu), Dropout(0.3), Dense(2)};
  made.compile({.optimizer = Adam({.learning_rate = ExponentialDecay({.initial_learning_rate = 0.05, .decay_steps = 5}),
                                   .gradient = {.gradient_accumulation_steps = accumulate_steps}}),
                .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                .metrics = {SparseCategoricalAccuracy()}});
  made.build({4});
  NamedTensors weights = made.weights();  // drawn by threads in any order: not the same in every run
  for (auto& [name, tensor] : weights) {
    if (name.starts_with("dense"))
      tensor = torch::cos(torch::arange(tensor.numel(), torch::kFloat)).view(tensor.sizes());
  }
  made.set_weights(weights);
  return made;
}

struct Plan {
  std::filesystem::path directory;
  int64_t save_freq = 0;
  int64_t steps_per_epoch = 0;
  int64_t interrupt_at = -1;  // after this step
  std::function<bool()> preempted = {};
  bool on_sigterm = false;
  bool validate = false;
  int64_t accumulate_steps = 1;
};

struct Result {
  NamedTensors weights;
  std::vector<std::pair<std::string, torch::Tensor>> optimizer;
  std::vector<double> losses;
  int64_t first_step = -1;  // updates that the first batch found
};

Result train(const Strategy& strategy, const Plan& run) {
  strategy.set_seed(5);
  const auto scope = strategy.scope();
  Sequential net = model(run.accumulate_steps);
  std::vector<CallbackPtr> callbacks;
  if (!run.directory.empty()) {
    callbacks.push_back(BackupAndRestore({.directory = run.directory,
                                          .save_freq = run.save_freq,
                                          .delete_checkpoint = false,
                                          .save_before_preemption = run.on_sigterm,
                                          .preempted = run.preempted}));
  }
  Result result;
  callbacks.push_back(LambdaCallback({.on_batch_begin =
                                          [&](const RunInfo& info) {
                                            if (result.first_step < 0) result.first_step = info.step;
                                          },
                                      .on_batch_end =
                                          [&](const RunInfo& info, const BatchLogs&) {
                                            if (info.step == run.interrupt_at) throw Interrupted();
                                          }}));
  FitOptions options{
      .epochs = 4, .steps_per_epoch = run.steps_per_epoch, .callbacks = callbacks, .verbose = Verbose::kSilent};
  if (run.validate) options.validation_data = batches();
  const History history = net.fit(run.steps_per_epoch > 0 ? batches().repeat() : batches(), options);
  result.weights = net.weights();
  result.optimizer = net.optimizer().state();
  result.losses = history["loss"];
  return result;
}

void expect_same(const Result& one, const Result& other) {
  ASSERT_EQ(one.weights.size(), other.weights.size());
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(one.weights[i].second, other.weights[i].second)) << one.weights[i].first;
  }
  for (std::size_t i = 0; i < one.optimizer.size(); ++i) {
    EXPECT_TRUE(torch::equal(one.optimizer[i].second, other.optimizer[i].second)) << one.optimizer[i].first;
  }
  EXPECT_NEAR(one.losses.back(), other.losses.back(), 1e-12);
}

struct Case {
  std::string name;
  int64_t save_freq;
  int64_t steps_per_epoch;
  int64_t interrupt_at;
};

class Backups : public ::testing::TestWithParam<Case> {};

TEST_P(Backups, GoOnBitForBit) {
  const Case& each = GetParam();
  for (const int replicas : {1, 2}) {
    SCOPED_TRACE(replicas);
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const TemporaryFolder folder;
    const Result whole = train(strategy, {{}, 0, each.steps_per_epoch});
    EXPECT_THROW(train(strategy, {folder / "cut", each.save_freq, each.steps_per_epoch, each.interrupt_at}),
                 Interrupted);
    const Result cut = train(strategy, {folder / "cut", each.save_freq, each.steps_per_epoch});
    EXPECT_LT(cut.losses.size(), 4U) << "it began anew";
    expect_same(whole, cut);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Backups,
                         ::testing::Values(Case{"between_epochs", 0, 0, 20}, Case{"within_an_epoch", 4, 0, 23},
                                           Case{"at_the_last_batch", 9, 0, 20}, Case{"epochs_in_steps", 0, 7, 16},
                                           Case{"within_steps", 3, 7, 17}),
                         [](const auto& info) { return info.param.name; });

TEST(Backup, TakesGradientsThatWaitForOthers) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const TemporaryFolder folder;
  const Result whole = train(strategy, {.accumulate_steps = 4});
  EXPECT_THROW(train(strategy, {.directory = folder / "cut", .save_freq = 3, .interrupt_at = 2, .accumulate_steps = 4}),
               Interrupted);
  expect_same(whole, train(strategy, {.directory = folder / "cut", .save_freq = 3, .accumulate_steps = 4}));
}

TEST(Backup, WorkersGoOnBitForBit) {
  const TemporaryFolder folder;
  std::array<Result, 2> whole;
  std::array<Result, 2> cut;
  const auto directory = [&](const char* name, const Strategy& strategy) {
    return strategy.should_checkpoint() ? folder / name : folder / "of nobody";
  };
  const testing::WorkersOptions group{.workers = 2, .replicas = 2};
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    whole[static_cast<std::size_t>(strategy.worker_rank())] = train(strategy, {directory("whole", strategy), 4});
  });
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    EXPECT_THROW(train(strategy, {directory("cut", strategy), 4, 0, 23}), Interrupted);
  });
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    cut[static_cast<std::size_t>(strategy.worker_rank())] = train(strategy, {directory("cut", strategy), 4});
  });
  for (std::size_t i = 0; i < 2; ++i) expect_same(whole[i], cut[i]);
  EXPECT_FALSE(std::filesystem::exists(folder / "of nobody"));
}

TEST(Backup, AnotherNumberOfReplicasBeginsTheEpochAnew) {
  const TemporaryFolder folder;
  const Plan run{folder / "run", 4, 0, 23};
  EXPECT_THROW(train(MirroredStrategy({.devices = cpu_devices(2)}), run), Interrupted);
  const Result result = train(OneDeviceStrategy("/CPU:0"), {folder / "run", 4});
  EXPECT_EQ(result.losses.size(), 2U) << "epochs 3 and 4";
  EXPECT_EQ(result.optimizer.front().second.item<int64_t>(), 20 + 2 * 9);
}

TEST(Backup, ADamagedOneIsNoEnd) {
  const TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Result whole = train(strategy, {folder / "whole", 4});
  EXPECT_THROW(train(strategy, {folder / "cut", 4, 0, 23}), Interrupted);
  std::filesystem::resize_file(folder / "cut" / "backup-20" / "model.safetensors", 100);
  expect_same(whole, train(strategy, {folder / "cut", 4}));
}

TEST(Backup, GoesAwayAtTheEnd) {
  const TemporaryFolder folder;
  Sequential net = model();
  net.fit(batches(),
          {.epochs = 1, .callbacks = {BackupAndRestore({.directory = folder / "run"})}, .verbose = Verbose::kSilent});
  EXPECT_FALSE(std::filesystem::exists(folder / "run"));
  std::filesystem::create_directory(folder / "run");
  testing::write_file(folder / "run" / "mine.txt", "keep me");
  net.fit(batches(),
          {.epochs = 1, .callbacks = {BackupAndRestore({.directory = folder / "run"})}, .verbose = Verbose::kSilent});
  EXPECT_EQ(testing::read_file(folder / "run" / "mine.txt"), "keep me");
}

TEST(Backup, AnotherModelIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(train(DefaultStrategy(), {folder / "run", 4, 0, 10}), Interrupted);
  Sequential other{Dense(3), Dense(2)};
  other.compile({.optimizer = Adam(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  expect_error<NotFound>(
      [&] {
        other.fit(batches(),
                  {.callbacks = {BackupAndRestore({.directory = folder / "run"})}, .verbose = Verbose::kSilent});
      },
      "load_state");
}

// True from the given call on; it is asked before every step and every batch of the validation.
std::function<bool()> at_call(int call) {
  return [call, calls = 0]() mutable { return calls++ >= call; };
}

class Preemptions : public ::testing::TestWithParam<int> {};

TEST_P(Preemptions, GoOnBitForBit) {
  for (const int replicas : {1, 3}) {
    for (const int64_t steps_per_epoch : {0, 7}) {
      SCOPED_TRACE(::testing::Message() << replicas << " replicas, " << steps_per_epoch << " steps");
      const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
      const TemporaryFolder folder;
      Plan plan{.directory = folder / "run", .steps_per_epoch = steps_per_epoch, .validate = true};
      Plan alone = plan;
      alone.directory.clear();
      plan.preempted = at_call(GetParam());
      EXPECT_THROW(train(strategy, plan), Preempted);
      plan.preempted = at_call(2);  // and once more
      EXPECT_THROW(train(strategy, plan), Preempted);
      plan.preempted = {};
      const Result cut = train(strategy, plan);
      EXPECT_GE(cut.first_step, 4) << "it began anew";
      expect_same(train(strategy, alone), cut);
    }
  }
}

// The moments are: in the second step; before the last one; at the end of the epoch; within its validation; in its last
// batch; later.
INSTANTIATE_TEST_SUITE_P(AtCall, Preemptions, ::testing::Values(0, 6, 8, 13, 18, 40));

TEST(Preemption, SigtermIsOne) {
  const TemporaryFolder folder;
  Plan plan{.directory = folder / "run", .on_sigterm = true};
  int calls = 0;
  plan.preempted = [&] {
    if (calls++ == 12) ::raise(SIGTERM);
    return false;
  };
  EXPECT_THAT(error_of<Preempted>([&] { train(DefaultStrategy(), plan); }),
              HasSubstr("training was left in epoch 2 after batch 5, step 14"));
  plan.preempted = {};
  const Result cut = train(DefaultStrategy(), plan);
  EXPECT_EQ(cut.first_step, 14);
  expect_same(train(DefaultStrategy(), {}), cut);
}

TEST(Preemption, OfOneWorkerMakesAllSaveTheSameStep) {
  const TemporaryFolder folder;
  const testing::WorkersOptions group{.workers = 3};
  std::array<Result, 3> whole;
  std::array<Result, 3> cut;
  with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
    whole[static_cast<std::size_t>(strategy.worker_rank())] = train(strategy, {.validate = true});
  });
  for (const int call : {3, 10, 12}) {  // the last two within a validation
    SCOPED_TRACE(call);
    std::array<std::string, 3> said;
    with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
      Plan plan{.directory = folder / std::to_string(call), .validate = true};
      plan.preempted = strategy.worker_rank() == 1 ? at_call(call) : [] { return false; };
      said[static_cast<std::size_t>(strategy.worker_rank())] = error_of<Preempted>([&] { train(strategy, plan); });
    });
    EXPECT_EQ(said[0], said[1]);
    EXPECT_EQ(said[0], said[2]);
    with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
      cut[static_cast<std::size_t>(strategy.worker_rank())] =
          train(strategy, {.directory = folder / std::to_string(call), .validate = true});
    });
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_GE(cut[i].first_step, std::min(call, 9)) << "it began anew";
      expect_same(whole[i], cut[i]);
    }
  }
}

// The training of one that is told to stop ends, it is not left with a batch that nobody takes.
TEST(Preemption, AtTheEndOfATrainingIsNone) {
  const TemporaryFolder folder;
  const auto stop = LambdaCallback({.on_batch_end = [](const RunInfo& info, const BatchLogs&) {
    if (info.step == 5) info.model.stop_training();
  }});
  Sequential net = model();
  net.fit(batches(), {.epochs = 2,
                      .callbacks = {stop, BackupAndRestore({.directory = folder / "run", .preempted = at_call(3)})},
                      .verbose = Verbose::kSilent});
  EXPECT_EQ(net.optimizer().state().front().second.item<int64_t>(), 5);
}

TEST(ModelCheckpoint, WritesTheBest) {
  const TemporaryFolder folder;
  Sequential net = model();
  const auto worse = LambdaCallback({.on_epoch_end = [](const RunInfo& run, Logs& logs) {
    logs.set("score", run.epoch == 1 ? 0.5 : 1.0 + static_cast<double>(run.epoch));
  }});
  const auto best = ModelCheckpoint({.filepath = (folder / "best/{epoch:02d}-{score:.1f}.safetensors").string(),
                                     .monitor = "score",
                                     .save_best_only = true,
                                     .save_weights_only = true,
                                     .mode = MonitorMode::kMin});
  const auto all = ModelCheckpoint({.filepath = (folder / "all/{epoch}").string()});
  net.fit(batches(), {.epochs = 3, .callbacks = {worse, best, all}, .verbose = Verbose::kSilent});
  EXPECT_TRUE(std::filesystem::exists(folder / "best/01-1.0.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "best/02-0.5.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder / "best/03-3.0.safetensors"));
  const SavedCheckpoint last = read_checkpoint(folder / "all/3");
  EXPECT_EQ(last.data.values.at("epoch"), "3");
  EXPECT_EQ(last.step, 27);
  for (const auto& [name, tensor] : net.weights()) {
    for (const auto& [saved_name, saved] : last.data.tensors.at("model")) {
      if (name == saved_name) {
        EXPECT_TRUE(torch::equal(tensor, saved)) << name;
      }
    }
  }
}

TEST(ModelCheckpoint, WrongOptionsAreNamed) {
  expect_error<InvalidArgument>([] { (void)ModelCheckpoint({}); }, "filepath is empty");
  expect_error<InvalidArgument>([] { (void)BackupAndRestore({}); }, "directory is empty");
  expect_error<InvalidArgument>([] { (void)BackupAndRestore({.directory = "x", .save_freq = -1}); }, "save_freq is -1");
  Sequential net = model();
  expect_error<InvalidArgument>(
      [&] {
        net.fit(batches(),
                {.callbacks = {ModelCheckpoint({.filepath = "/tmp/{nothing}"})}, .verbose = Verbose::kSilent});
      },
      "its places may be epoch, batch, loss");
}

}  // namespace
}  // namespace cohort::backup_test
