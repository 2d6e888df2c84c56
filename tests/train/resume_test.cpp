// Programs with all that decides how a training goes on (tied weights, averages of the weights over stages, rates and
// stops that callbacks decide on): interrupted and resumed they end with the bits of the undisturbed run.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::resume_test {
namespace {

using testing::TemporaryFolder;
using testing::with_workers;

constexpr int64_t kRows = 60;

Dataset batches() {
  const torch::Tensor x = torch::sin(torch::arange(kRows * 6, torch::kFloat)).view({kRows, 6});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong)).shuffle(30, {.seed = 3}).batch(12);
}

// The last layer is the first one's transpose: one tensor under two names.
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const torch::Tensor& shared) { weight = register_parameter("weight", shared); }
  torch::Tensor weight;
};
TORCH_MODULE(Head);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(torch::nn::LinearOptions(6, 8).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    last = register_module("last", Head(first->weight));
    const torch::NoGradGuard no_grad;
    first->weight.copy_(torch::cos(torch::arange(48, torch::kFloat)).view({8, 6}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return norm(torch::tanh(first(x))).matmul(last->weight).slice(1, 0, 2);
  }
  torch::nn::Linear first{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Head last{nullptr};
};
TORCH_MODULE(Net);

CompileOptions compiled() {
  return {.optimizer = Adam({.learning_rate = 0.05}), .loss = SparseCategoricalCrossentropy({.from_logits = true})};
}

struct Interrupted : std::exception {};

struct Outcome {
  NamedTensors weights;
  NamedTensors optimizer;
  double rate = 0.0;
  std::vector<int64_t> epochs;
};

void expect_same(const Outcome& got, const Outcome& wanted) {
  ASSERT_EQ(got.weights.size(), wanted.weights.size());
  for (std::size_t i = 0; i < got.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(got.weights[i].second, wanted.weights[i].second)) << got.weights[i].first;
  }
  ASSERT_EQ(got.optimizer.size(), wanted.optimizer.size());
  for (std::size_t i = 0; i < got.optimizer.size(); ++i) {
    EXPECT_EQ(got.optimizer[i].first, wanted.optimizer[i].first);
    EXPECT_TRUE(torch::equal(got.optimizer[i].second, wanted.optimizer[i].second)) << got.optimizer[i].first;
  }
  EXPECT_EQ(got.rate, wanted.rate);
  EXPECT_EQ(got.epochs.back(), wanted.epochs.back());
}

// Numbers as a validation might give them: they get better, then worse, then better again.
CallbackPtr scores() {
  return LambdaCallback({.on_epoch_end = [](const RunInfo& run, Logs& logs) {
    const std::vector<double> scores = {1.0, 0.8, 0.9, 0.85, 0.7, 0.75, 0.76, 0.77, 0.78, 0.6, 0.5, 0.4};
    logs.set("score", scores.at(static_cast<std::size_t>(run.epoch)));
  }});
}

struct Plan {
  std::filesystem::path directory;
  int64_t save_freq = 0;
  int64_t interrupt_at = -1;  // within this step
};

// `more`: the callbacks that are tested; they see the score.
Outcome fit(const Strategy& strategy, const Plan& plan, const std::vector<CallbackPtr>& more) {
  strategy.set_seed(5);
  const auto scope = strategy.scope();
  Model net([] { return Net(); });
  net.compile(compiled());
  std::vector<CallbackPtr> callbacks;
  // First in the list: what it saves has seen what the others have, all the same.
  if (!plan.directory.empty()) {
    callbacks.push_back(
        BackupAndRestore({.directory = plan.directory, .save_freq = plan.save_freq, .delete_checkpoint = false}));
  }
  callbacks.push_back(scores());
  callbacks.insert(callbacks.end(), more.begin(), more.end());
  callbacks.push_back(LambdaCallback({.on_batch_begin = [&](const RunInfo& info) {
    if (info.step + 1 == plan.interrupt_at) throw Interrupted();
  }}));
  const History history = net.fit(batches(), {.epochs = 12, .callbacks = callbacks, .verbose = Verbose::kSilent});
  return {.weights = net.weights(),
          .optimizer = net.optimizer().state(),
          .rate = net.optimizer().learning_rate(),
          .epochs = history.epochs()};
}

using Callbacks = std::function<std::vector<CallbackPtr>()>;

std::vector<CallbackPtr> plateau() {
  return {ReduceLROnPlateau(
      {.monitor = "score", .factor = 0.5, .patience = 2, .mode = MonitorMode::kMin, .min_delta = 0.0, .cooldown = 1})};
}
std::vector<CallbackPtr> scheduler() {
  return {LearningRateScheduler([](int64_t epoch, double rate) { return epoch < 2 ? rate : rate * 0.9; })};
}
std::vector<CallbackPtr> stopping() {
  return {EarlyStopping({.monitor = "score", .patience = 3, .mode = MonitorMode::kMin, .restore_best_weights = true})};
}
// Two of a kind; and a rate that the program sets by itself.
std::vector<CallbackPtr> several() {
  std::vector<CallbackPtr> list = plateau();
  list.push_back(ReduceLROnPlateau(
      {.monitor = "score", .factor = 0.9, .patience = 1, .mode = MonitorMode::kMin, .min_delta = 0.0}));
  list.push_back(LambdaCallback({.on_epoch_end = [](const RunInfo& run, Logs&) {
    if (run.epoch == 3) run.model.optimizer().set_learning_rate(0.04);
  }}));
  return list;
}

class Resumed : public ::testing::TestWithParam<std::pair<const char*, Callbacks>> {};

// Five steps an epoch.
TEST_P(Resumed, IsTheUndisturbedRun) {
  const Callbacks& callbacks = GetParam().second;
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const Outcome wanted = fit(strategy, {}, callbacks());
    for (const int64_t save_freq : {0, 3}) {
      const TemporaryFolder folder;
      for (const int64_t cut : {17, 24, 31, 38}) {
        const Plan plan{.directory = folder / "run", .save_freq = save_freq, .interrupt_at = cut};
        EXPECT_THROW(fit(strategy, plan, callbacks()), Interrupted) << "in step " << cut;
      }
      SCOPED_TRACE(::testing::Message() << replicas << " replicas, save_freq " << save_freq);
      expect_same(fit(strategy, {.directory = folder / "run", .save_freq = save_freq}, callbacks()), wanted);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Resumed,
                         ::testing::Values(std::pair{"plateau", Callbacks(plateau)},
                                           std::pair{"scheduler", Callbacks(scheduler)},
                                           std::pair{"stopping", Callbacks(stopping)},
                                           std::pair{"several", Callbacks(several)}),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(Resume, EveryWorkerGoesOnWithTheChiefsStates) {
  const auto callbacks = [] {
    std::vector<CallbackPtr> list = plateau();
    list.push_back(stopping().front());
    return list;
  };
  const TemporaryFolder folder;
  std::array<Outcome, 2> wanted;
  std::array<Outcome, 2> got;
  const auto plan = [&](const Strategy& strategy, int64_t cut) {
    return Plan{.directory = folder / (strategy.should_checkpoint() ? "run" : "nobody's"), .interrupt_at = cut};
  };
  with_workers({}, [&](const MultiWorkerMirroredStrategy& strategy) {
    wanted.at(static_cast<std::size_t>(strategy.worker_rank())) = fit(strategy, {}, callbacks());
  });
  with_workers({}, [&](const MultiWorkerMirroredStrategy& strategy) {
    EXPECT_THROW(fit(strategy, plan(strategy, 33), callbacks()), Interrupted);
  });
  with_workers({}, [&](const MultiWorkerMirroredStrategy& strategy) {
    got.at(static_cast<std::size_t>(strategy.worker_rank())) = fit(strategy, plan(strategy, -1), callbacks());
  });
  for (std::size_t i = 0; i < 2; ++i) expect_same(got.at(i), wanted.at(i));
}

TEST(Resume, AStoppedTrainingIsNotGoneOnWith) {
  const TemporaryFolder folder;
  const DefaultStrategy strategy;
  const Outcome stopped = fit(strategy, {.directory = folder / "run"}, stopping());
  EXPECT_EQ(stopped.epochs.back(), 7);
  const auto again = [&] {
    const auto scope = strategy.scope();
    Model net([] { return Net(); });
    net.compile(compiled());
    std::vector<CallbackPtr> callbacks = stopping();
    callbacks.push_back(BackupAndRestore({.directory = folder / "run", .delete_checkpoint = false}));
    EXPECT_TRUE(
        net.fit(batches(), {.epochs = 12, .callbacks = callbacks, .verbose = Verbose::kSilent}).epochs().empty());
    return net.weights();
  }();
  for (std::size_t i = 0; i < again.size(); ++i) {
    EXPECT_TRUE(torch::equal(again[i].second, stopped.weights[i].second)) << again[i].first;
  }
}

TEST(Resume, StatesStandInTheManifest) {
  const TemporaryFolder folder;
  EXPECT_THROW(fit(DefaultStrategy(), {.directory = folder / "run", .interrupt_at = 24}, several()), Interrupted);
  const SavedCheckpoint saved = read_checkpoint(folder / "run" / "backup-20");
  EXPECT_EQ(saved.data.values.at("callback.reduce_lr_on_plateau.wait"), "0");
  EXPECT_EQ(saved.data.values.at("callback.reduce_lr_on_plateau.cooldown"), "1");
  EXPECT_EQ(saved.data.values.at("callback.reduce_lr_on_plateau-2.best"), "0.80000000000000004");
  std::set<std::string> names;
  for (const auto& [name, tensor] : saved.data.tensors.at("optimizer")) {
    names.insert(name);
    if (name == "learning_rate") {
      EXPECT_EQ(tensor.item<double>(), 0.04);
    }
  }
  EXPECT_TRUE(names.contains("learning_rate"));
  EXPECT_FALSE(names.contains("last.weight/m")) << "a tied parameter has its slots once";
}

// The rate is the servers' there.
TEST(Resume, OnParameterServers) {
  const TemporaryFolder folder;
  const auto rate_after = [&](int64_t epochs) {
    double rate = 0.0;
    testing::ServerCluster({.servers = 2}).run([&](const ParameterServerOptions& own) {
      const ParameterServerStrategy strategy(own);
      const auto scope = strategy.scope();
      Sequential net{Dense({.units = 4, .kernel_initializer = Initializer::kOnes}), Dense(2)};
      net.build({6});
      net.compile(compiled());
      if (strategy.serve()) return;
      std::vector<CallbackPtr> callbacks = plateau();
      callbacks.insert(callbacks.begin(), scores());
      callbacks.push_back(BackupAndRestore({.directory = folder / "run", .delete_checkpoint = false}));
      net.fit(batches(), {.epochs = epochs, .callbacks = callbacks, .verbose = Verbose::kSilent});
      rate = net.optimizer().learning_rate();
    });
    return rate;
  };
  // The program trains so many epochs, and another one goes on with one more.
  EXPECT_EQ(rate_after(4), 0.025);
  EXPECT_EQ(rate_after(5), 0.025);
}

// A Controller's program: a layer thaws on the way, the averages are what is evaluated.
struct Staged {
  explicit Staged(const Strategy& strategy) : scope(strategy.scope()) {
    strategy.set_seed(5);
    compile(0);
    trainer = std::make_shared<ModelTrainer>(model, ModelTrainerOptions{.train = batches().repeat(),
                                                                        .validation = batches(),
                                                                        .ema = {.average_decay = 0.9},
                                                                        .stages = {7, 15},
                                                                        .begin_stage = [this](auto i) { compile(i); },
                                                                        .verbose = Verbose::kSilent});
  }

  void compile(std::size_t stage) {
    model.layer("first").set_trainable(stage != 1);
    model.compile(compiled());
  }

  NamedTensors averages() {
    NamedTensors list;
    trainer->with_averages([&] { list = model.weights(); });
    return list;
  }

  StrategyScope scope;
  Model model{[] { return Net(); }};
  std::shared_ptr<ModelTrainer> trainer;
};

TEST(Resume, AveragesGoOnThroughTheStages) {
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const TemporaryFolder folder;
    struct Killed {};
    const auto run_to = [&](const std::filesystem::path& where, int64_t kill_at) {
      Staged run(strategy);
      const auto kill = [&](const ActionInfo& info) {
        if (info.step >= kill_at) throw Killed();
      };
      Controller controller({.trainer = run.trainer,
                             .evaluator = run.trainer,
                             .train_actions = {kill},
                             .steps_per_loop = 3,
                             .checkpoint_dir = where,
                             .checkpoint_interval = 2});
      const Logs logs = controller.train_and_evaluate(24, kAllSteps, 5);
      return std::tuple{run.averages(), run.model.weights(), logs["loss"]};
    };
    const auto [averages, weights, loss] = run_to(folder / "whole", 100);
    for (const int64_t cut : {4, 7, 8, 12, 15, 20}) {
      SCOPED_TRACE(::testing::Message() << replicas << " replicas, cut at " << cut);
      const auto where = folder / ("cut" + std::to_string(cut));
      EXPECT_THROW(run_to(where, cut), Killed);
      const auto [got_averages, got_weights, got_loss] = run_to(where, 100);
      EXPECT_EQ(got_loss, loss);
      for (std::size_t i = 0; i < averages.size(); ++i) {
        EXPECT_TRUE(torch::equal(got_averages[i].second, averages[i].second)) << averages[i].first;
        EXPECT_TRUE(torch::equal(got_weights[i].second, weights[i].second)) << weights[i].first;
      }
    }
  }
}

TEST(Averages, FollowTheWeightsOfEveryStage) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  Staged run(strategy);
  std::map<std::string, torch::Tensor> average;
  for (int64_t step = 1; step <= 20; ++step) {
    run.trainer->train(1);
    const double decay = std::min(0.9, (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step)));
    for (const auto& [name, tensor] : run.model.weights()) {
      average[name] = step == 1 ? tensor.clone() : average[name] * decay + tensor * (1.0 - decay);
    }
  }
  for (const auto& [name, tensor] : run.averages()) {
    if (name.find("running") != std::string::npos || name.find("batches") != std::string::npos) continue;
    EXPECT_TRUE(torch::allclose(tensor, average[name], 1e-5, 1e-6)) << name;
  }
}

}  // namespace
}  // namespace cohort::resume_test
