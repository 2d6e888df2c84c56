// Steps that are one loop on XLA's devices (steps_per_loop, steps_per_execution, run_loop): the same bits as single
// launches, the same weights as one CPU device, one launch a loop.
#include <algorithm>
#include <iterator>

#include "cohort/cluster/xla_strategy.h"
#include "cohort/train.h"
#include "tests/equivalence/runs.h"
#include "tests/support/counting_runner.h"
#include "tests/support/files.h"
#include "tests/support/xla.h"

namespace cohort::equivalence::xla_loop_test {
namespace {

using cohort::testing::CountingRunner;

constexpr int kDevices = 8;
constexpr int64_t kBatch = 16;

torch::nn::Sequential mlp() {
  torch::nn::Sequential net(torch::nn::Linear(kFeatures, 31), torch::nn::ReLU(), torch::nn::Linear(31, kClasses));
  net->to(torch::kDouble);
  return net;
}

class XlaLoop : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cohort::testing::cpu_plugin() == nullptr) GTEST_SKIP() << cohort::testing::kNoCpuPlugin;
    (void)xla();  // before the first backward of the process
  }
  static Strategy xla() {
    return XlaStrategy({.plugin = "cpu",
                        .num_devices = GetParam(),
                        .plugin_options = c10::str("cpu_device_count=", kDevices),
                        .timeout = std::chrono::minutes(2)});
  }
};

// 20 batches.
Example columns(torch::ScalarType dtype) {
  torch::manual_seed(21);
  return {.x = torch::randn({kSteps * kBatch, kFeatures}, dtype),
          .y = torch::randint(kClasses, {kSteps * kBatch}, torch::kLong)};
}

Dataset batches(torch::ScalarType dtype = torch::kDouble) {
  return Dataset::from_tensor_slices(columns(dtype)).batch(kBatch);
}

struct Trained {
  NamedTensors weights;
  std::vector<double> losses;  // as a callback reads them
};

void expect_same_bits(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(a.weights[i].second, b.weights[i].second)) << a.weights[i].first;
  }
}

Trained trained_by_fit(const Strategy& strategy, int64_t steps_per_execution) {
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  Model model([] { return mlp(); });
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})},
                 .steps_per_execution = steps_per_execution});
  Trained trained;
  const auto read = [&](const RunInfo& /*run*/, const BatchLogs& logs) { trained.losses.push_back(logs.loss()); };
  model.fit(batches(), {.callbacks = {LambdaCallback({.on_batch_end = read})}, .verbose = Verbose::kSilent});
  trained.weights = model.weights();
  return trained;
}

TEST_P(XlaLoop, FitInLoopsHasTheBitsOfSingleLaunchesAndTheWeightsOfOneCpu) {
  const Trained alone = trained_by_fit(OneDeviceStrategy("/CPU:0"), 1);
  const Strategy strategy = xla();
  const Trained single = trained_by_fit(strategy, 1);
  Trained loops;
  {
    const CountingRunner::Scope counting;
    loops = trained_by_fit(strategy, 7);
    // 20 steps are three loops of one program; the first launches make the slots and the metrics.
    const std::vector<int64_t> last(counting->launches.end() - 3, counting->launches.end());
    EXPECT_EQ(last, (std::vector<int64_t>{7, 7, 7}));
    EXPECT_LE(counting->launches.size(), 5U);
  }
  expect_same_bits(single, loops);
  ASSERT_EQ(loops.losses.size(), 3U);
  EXPECT_EQ(loops.losses[0], single.losses[6]);
  EXPECT_EQ(loops.losses[1], single.losses[13]);
  EXPECT_EQ(loops.losses[2], single.losses[19]);
  for (std::size_t i = 0; i < alone.weights.size(); ++i) {
    EXPECT_LT(distance(alone.weights[i].second, loops.weights[i].second.cpu()), 1e-9) << alone.weights[i].first;
  }
}

TEST_P(XlaLoop, EvaluationsAreLoopsToo) {
  const Strategy strategy = xla();
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  std::vector<Logs> logs;
  for (const int64_t steps : {1, 7}) {
    torch::manual_seed(5);
    Model model([] { return mlp(); });
    model.compile({.optimizer = Adam({}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})},
                   .steps_per_execution = steps});
    const CountingRunner::Scope counting;
    logs.push_back(model.evaluate(batches(), {.verbose = Verbose::kSilent}));
    const std::size_t launches = steps == 1 ? 20 : 3;
    ASSERT_GE(counting->launches.size(), launches);
    const std::vector<int64_t> last(counting->launches.end() - static_cast<std::ptrdiff_t>(launches),
                                    counting->launches.end());
    EXPECT_EQ(last, std::vector<int64_t>(launches, steps == 1 ? 0 : 7));
  }
  EXPECT_EQ(logs[0]["loss"], logs[1]["loss"]);
  EXPECT_EQ(logs[0]["accuracy"], logs[1]["accuracy"]);
}

TEST_P(XlaLoop, PredictionsAreLoopsToo) {
  const Strategy strategy = xla();
  const auto scope = strategy.scope();
  std::vector<torch::Tensor> predictions;
  for (const int64_t steps : {1, 7}) {
    torch::manual_seed(5);
    Model model([] { return mlp(); });
    model.compile({.optimizer = Adam({}),
                   .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                   .steps_per_execution = steps});
    const CountingRunner::Scope counting;
    predictions.push_back(model.predict(batches()));
    const std::size_t launches = steps == 1 ? 20 : 3;
    ASSERT_GE(counting->launches.size(), launches);
    const std::vector<int64_t> last(counting->launches.end() - static_cast<std::ptrdiff_t>(launches),
                                    counting->launches.end());
    EXPECT_EQ(last, std::vector<int64_t>(launches, steps == 1 ? 0 : 7));
  }
  EXPECT_TRUE(torch::equal(predictions[0], predictions[1]));
  EXPECT_EQ(predictions[0].size(0), kSteps * kBatch);
}

// A model with all that has a state: dropout, batch statistics, momentum.
Sequential net(const Strategy& strategy) {
  torch::manual_seed(5);
  strategy.set_seed(5);
  Sequential model{Dense(16, Activation::kRelu), BatchNormalization(), Dropout(0.3), Dense(kClasses)};
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  return model;
}

// Trains to these steps, one after the other, each by a program of its own that goes on from the last checkpoint.
Trained trained_by_controller(const Strategy& strategy, int64_t steps_per_loop, const std::vector<int64_t>& ends) {
  const cohort::testing::TemporaryFolder folder;
  Trained trained;
  for (const int64_t end : ends) {
    const auto scope = strategy.scope();
    Sequential model = net(strategy);
    const auto trainer = std::make_shared<ModelTrainer>(
        model, ModelTrainerOptions{.train = batches(torch::kFloat).repeat(), .verbose = Verbose::kSilent});
    Controller controller({.trainer = trainer, .steps_per_loop = steps_per_loop, .checkpoint_dir = folder / "run"});
    controller.train(end);
    trained.weights = model.weights();
  }
  return trained;
}

TEST_P(XlaLoop, AControllersLoopsAreLaunchesAndGoOnAfterACheckpoint) {
  const Strategy strategy = xla();
  const Trained single = trained_by_controller(strategy, 1, {20});
  {
    const CountingRunner::Scope counting;
    const Trained loops = trained_by_controller(strategy, 7, {20});
    expect_same_bits(single, loops);
    std::vector<int64_t> whiles;
    std::copy_if(counting->launches.begin(), counting->launches.end(), std::back_inserter(whiles),
                 [](int64_t most) { return most > 0; });
    EXPECT_EQ(whiles, (std::vector<int64_t>{7, 7, 6}));
  }
  expect_same_bits(single, trained_by_controller(strategy, 7, {9, 20}));
}

struct OwnLoop {
  torch::Tensor weights;
  std::vector<torch::Tensor> losses;
};

// 20 steps of a loop of one's own, in loops of so many.
OwnLoop trained_by_own_loop(const Strategy& strategy, int64_t together, bool keeps_losses) {
  torch::manual_seed(5);
  auto net = strategy.mirror([] { return mlp(); });
  auto optimizer = strategy.optimizer(
      net,
      Adam({.learning_rate = ExponentialDecay({.initial_learning_rate = 0.02, .decay_steps = 5, .decay_rate = 0.5})}));
  const std::vector<Example> batches = global_batches(torch::kDouble, /*short_ones=*/false, kBatch);
  OwnLoop own;
  const auto step = [&](std::size_t i) {
    const auto losses = strategy.run(
        [&](Replica& replica, const Example& part) {
          const Example share = part.to(replica.device());
          const torch::Tensor loss = torch::nn::functional::cross_entropy(net[replica]->forward(share.x), share.y);
          optimizer[replica].minimize(loss / strategy.num_replicas_in_sync());
          return loss.detach();
        },
        split(batches[i], strategy.num_local_replicas()));
    if (keeps_losses) own.losses.push_back(losses[0]);
  };
  for (int64_t begin = 0; begin < kSteps; begin += together) {
    strategy.run_loop(std::min<int64_t>(together, kSteps - begin),
                      [&](int64_t i) { step(static_cast<std::size_t>(begin + i)); });
  }
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& parameter : net.copies().back()->parameters()) flat.push_back(parameter.detach().flatten());
  own.weights = torch::cat(flat).cpu();
  return own;
}

TEST_P(XlaLoop, AnOwnLoopWithAScheduleAndItsLosses) {
  const Strategy strategy = xla();
  const OwnLoop single = trained_by_own_loop(strategy, 1, true);
  const CountingRunner::Scope counting;
  for (const bool keeps : {false, true}) {
    counting->launches.clear();
    const OwnLoop loops = trained_by_own_loop(strategy, 10, keeps);
    EXPECT_EQ((std::vector<int64_t>(counting->launches.end() - 2, counting->launches.end())),
              (std::vector<int64_t>{10, 10}));
    EXPECT_TRUE(torch::equal(single.weights, loops.weights));
    for (std::size_t i = 0; i < loops.losses.size(); ++i) {
      EXPECT_TRUE(torch::equal(single.losses[i].cpu(), loops.losses[i].cpu())) << i;
    }
  }
}

TEST_P(XlaLoop, InputThatIsTooLargeIsSeveralLaunches) {
  const int64_t bytes = kBatch / GetParam() * (kFeatures + 1) * 8;  // of a share
  const XlaStrategy strategy({.plugin = "cpu", .num_devices = GetParam(), .loop_input_bytes = 5 * bytes});
  const CountingRunner::Scope counting;
  const Trained loops = trained_by_fit(strategy, 10);
  const int64_t most = *std::max_element(counting->launches.begin(), counting->launches.end());
  EXPECT_GT(most, 1);
  EXPECT_LT(most, 5);
  expect_same_bits(trained_by_fit(xla(), 1), loops);
  EXPECT_THROW(XlaStrategy({.plugin = "cpu", .loop_input_bytes = 0}), InvalidArgument);
}

TEST_P(XlaLoop, AnExceptionEndsTheLoopAfterTheStepsThatHaveCome) {
  const Strategy strategy = xla();
  auto net = strategy.mirror([] { return torch::nn::Linear(2, 1); });
  auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  const torch::Tensor before = net.copies()[0]->parameters()[0].cpu();
  const auto step = [&](int64_t i) {
    if (i == 2) throw std::runtime_error("the caller's own");
    strategy.run([&](Replica& replica) {
      optimizer[replica].minimize(net[replica]->forward(torch::ones({4, 2}).to(replica.device())).sum());
    });
  };
  EXPECT_THROW(strategy.run_loop(5, step), std::runtime_error);
  const double moved = 2.0 * 4 * GetParam();
  for (const auto& copy : net.copies()) EXPECT_TRUE(copy->parameters()[0].cpu().allclose(before - moved));
  EXPECT_THROW(strategy.run_loop(-1, step), InvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Replicas, XlaLoop, ::testing::Values(1, 2, 4, 8),
                         [](const auto& info) { return c10::str(info.param); });

}  // namespace
}  // namespace cohort::equivalence::xla_loop_test
