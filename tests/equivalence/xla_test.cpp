// The specification of the library on devices of XLA: 1, 2, 4 and 8 replicas take the same steps as one CPU, with
// shares of different sizes and empty ones, under every optimizer; in loops of one's own and by fit, evaluate and
// predict.
#include <filesystem>

#include "cohort/cluster/xla_strategy.h"
#include "cohort/train.h"
#include "tests/equivalence/runs.h"
#include "tests/support/counting_runner.h"
#include "tests/support/xla.h"
#include "wings/xla/record/recorder.h"

namespace cohort::equivalence::xla_test {
namespace {

constexpr int kDevices = 8;
// A batch that divides by the replicas of every row.
constexpr int64_t kBatch = 16;

torch::nn::Sequential mlp() {
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, 31), torch::nn::ReLU(), torch::nn::Linear(31, 17),
                               torch::nn::Tanh(), torch::nn::Linear(17, kClasses));
}

// Two parameters: a program is compiled for every rule.
torch::nn::Sequential small() {
  return torch::nn::Sequential(torch::nn::Linear(kFeatures, kClasses));
}

// Whole batches, because batch statistics are each replica's own.
torch::nn::Sequential cnn() {
  using torch::nn::Conv2dOptions;
  return torch::nn::Sequential(torch::nn::Unflatten(torch::nn::UnflattenOptions(1, {1, 3, 4})),
                               torch::nn::Conv2d(Conv2dOptions(1, 6, 3).padding(1).bias(false)),
                               torch::nn::BatchNorm2d(6), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                               torch::nn::Flatten(), torch::nn::Linear(12, kClasses));
}

class XlaEquivalence : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (cohort::testing::cpu_plugin() == nullptr) GTEST_SKIP() << cohort::testing::kNoCpuPlugin;
    (void)xla(1);  // before the first backward of the process
  }
  static Strategy xla(int replicas) {
    return XlaStrategy({.plugin = "cpu",
                        .num_devices = replicas,
                        .plugin_options = c10::str("cpu_device_count=", kDevices),
                        .timeout = std::chrono::minutes(2)});
  }
  static Strategy xla() { return xla(GetParam()); }
  static Strategy cpus() { return MirroredStrategy({.devices = cpu_devices(GetParam())}); }
};

TEST_P(XlaEquivalence, AdamInFloat64) {
  const auto rule = Adam({.learning_rate = 0.01});
  const RunOptions run{.batch = kBatch};
  const torch::Tensor together = weights_after(xla(), rule, run, mlp);
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, run, mlp);
  EXPECT_LT(distance(alone, together), 1e-9);
}

TEST_P(XlaEquivalence, ACnnWithBatchNorm) {
  const auto rule = Adam({.learning_rate = 0.01});
  const RunOptions run{.short_batches = false, .batch = kBatch};
  const std::vector<torch::Tensor> here = copies_after(xla(), rule, run, cnn);
  const std::vector<torch::Tensor> host = copies_after(cpus(), rule, run, cnn);
  ASSERT_EQ(here.size(), host.size());
  for (std::size_t r = 0; r < here.size(); ++r) EXPECT_LT(distance(here[r], host[r]), 1e-9) << r;
}

INSTANTIATE_TEST_SUITE_P(Replicas, XlaEquivalence, ::testing::Values(1, 2, 4, 8),
                         [](const auto& info) { return c10::str(info.param); });

class XlaTwo : public XlaEquivalence {};

TEST_P(XlaTwo, EveryOptimizerInFloat64) {
  const RunOptions run{.short_batches = false};
  for (const Rule& rule : rules()) {
    const torch::Tensor together = weights_after(xla(), rule.make(), run, small);
    const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule.make(), run, small);
    EXPECT_LT(distance(alone, together), 1e-9) << rule.name;
  }
}

TEST_P(XlaTwo, ALossScaleLeavesOutTheSameSteps) {
  const auto rule = Adam({.learning_rate = 0.01, .gradient = {.loss_scale = LossScale()}});
  const torch::Tensor together = weights_after(xla(), rule, {}, mlp);
  const torch::Tensor alone = weights_after(OneDeviceStrategy("/CPU:0"), rule, {}, mlp);
  EXPECT_LT(distance(alone, together), 1e-9);
}

// 90 examples in batches of 16 end with a short one.
Example columns() {
  torch::manual_seed(21);
  return {.x = torch::randn({90, kFeatures}, torch::kDouble), .y = torch::randint(kClasses, {90}, torch::kLong)};
}

Model compiled() {
  torch::manual_seed(5);
  Model model([] {
    auto net = mlp();
    net->to(torch::kDouble);
    return net;
  });
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  return model;
}

struct Trained {
  double loss = 0.0;
  double accuracy = 0.0;
  torch::Tensor predictions;
};

Trained judged(Model& model) {
  const Dataset data = Dataset::from_tensor_slices(columns()).batch(16);
  const Logs logs = model.evaluate(data);
  return {logs["loss"], logs["accuracy"], model.predict(data).cpu()};
}

// Two epochs under the first strategy, two more under the second, with the state handed over by a checkpoint.
Trained handed_over(const Strategy& first, const Strategy& second) {
  const auto folder = std::filesystem::temp_directory_path() / ("cohort_xla_test_" + std::to_string(::getpid()));
  std::filesystem::remove_all(folder);
  const Dataset data = Dataset::from_tensor_slices(columns()).batch(16);
  for (const auto& [strategy, epochs] : {std::pair(first, 2), std::pair(second, 4)}) {
    const auto scope = strategy.scope();
    Model model = compiled();
    model.fit(data,
              {.epochs = epochs, .callbacks = {BackupAndRestore({.directory = folder, .delete_checkpoint = false})}});
    if (epochs == 4) return judged(model);
  }
  return {};
}

TEST_P(XlaTwo, FitEvaluatePredictAndCheckpointsOfOtherStrategies) {
  const Trained wanted = handed_over(cpus(), cpus());
  const std::vector<std::pair<Strategy, Strategy>> ways = {{xla(), xla()}, {xla(), cpus()}, {cpus(), xla()}};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Trained got = handed_over(ways[i].first, ways[i].second);
    EXPECT_NEAR(got.loss, wanted.loss, 1e-9) << i;
    EXPECT_EQ(got.accuracy, wanted.accuracy) << i;
    EXPECT_LT(distance(got.predictions, wanted.predictions), 1e-9) << i;
  }
}

TEST_P(XlaTwo, CollectivesWithinAReplica) {
  const Strategy strategy = xla();
  const auto sums = strategy.run([](Replica& replica) {
    const torch::Tensor own = torch::full({3}, replica.id() + 1.0, torch::TensorOptions().device(replica.device()));
    const torch::Tensor gathered = replica.all_gather(own);
    return replica.all_reduce(ReduceOp::kSum, own) + gathered.sum();
  });
  for (const torch::Tensor& sum : strategy.local_results(sums)) {
    EXPECT_TRUE(sum.cpu().equal(torch::full({3}, 12.0))) << sum.cpu();
  }
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, sums).cpu()[0].item<double>(), 12.0);
}

TEST_P(XlaTwo, AReplicaThatFailsLeavesTheParametersOfTheOthers) {
  const Strategy strategy = xla();
  auto net = strategy.mirror([] { return torch::nn::Linear(2, 1); });
  auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 1.0}));
  const torch::Tensor before = net.copies()[0]->parameters()[0].cpu();
  const auto step = [&](bool fails) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor loss = net[replica]->forward(torch::ones({4, 2}).to(replica.device())).sum();
      if (fails && replica.id() == 1) throw std::runtime_error("a replica's own");
      optimizer[replica].minimize(loss);
    });
  };
  EXPECT_THROW(step(true), std::runtime_error);
  EXPECT_TRUE(net.copies()[0]->parameters()[0].cpu().equal(before));
  step(false);
  // Each replica's gradient is 4 for each weight.
  for (const auto& copy : net.copies()) EXPECT_TRUE(copy->parameters()[0].cpu().allclose(before - 8.0));
}

TEST_P(XlaTwo, AccumulationWithClippingAndAverages) {
  const auto rule = Adam({.learning_rate = 0.01,
                          .gradient = {.global_clipnorm = 0.1, .gradient_accumulation_steps = 4},
                          .ema = {.use_ema = true, .ema_momentum = 0.8}});
  torch::Tensor ends[2];
  for (const bool here : {false, true}) {
    torch::manual_seed(5);
    const Strategy strategy = here ? xla() : cpus();
    auto net = strategy.mirror([] {
      auto module = small();
      module->to(torch::kDouble);
      return module;
    });
    const auto optimizer = strategy.optimizer(net, rule);
    for (const Example& batch : global_batches(torch::kDouble, /*short_ones=*/true, kBatch)) {
      strategy.run(
          [&](Replica& replica, const Example& part) {
            const Example share = part.to(replica.device());
            const auto each = (net[replica]->forward(share.x).logsumexp(1) - share.y).pow(2);
            optimizer[replica].minimize(replica.global_mean(each));
          },
          split(batch, 2));
    }
    optimizer.finalize_variable_values();
    ends[here ? 1 : 0] =
        torch::cat({net.copies()[1]->parameters()[0].detach().flatten(), net.copies()[1]->parameters()[1].detach()})
            .cpu();
  }
  EXPECT_LT(distance(ends[0], ends[1]), 1e-9);
}

// Returns the predictions of a model that was trained with the policy.
torch::Tensor trained_with(const Strategy& strategy, PrecisionPolicy policy) {
  const auto scope = strategy.scope();
  torch::manual_seed(5);
  Model model([] { return mlp(); });
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .precision = policy});
  Example single = columns();
  single.x = single.x.to(torch::kFloat);
  const Dataset data = Dataset::from_tensor_slices(single).batch(15);
  model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent});
  return model.predict(data).cpu();
}

TEST_P(XlaTwo, MixedPrecisionIsNearTheHosts) {
  const torch::Tensor single = trained_with(xla(), PrecisionPolicy::kFloat32);
  EXPECT_LT(distance(single, trained_with(cpus(), PrecisionPolicy::kFloat32)), 1e-4);
  for (const auto policy : {PrecisionPolicy::kMixedBFloat16, PrecisionPolicy::kMixedFloat16}) {
    const torch::Tensor mixed = trained_with(xla(), policy);
    EXPECT_LT(distance(mixed, single), 0.1);
    EXPECT_GT(distance(mixed, single), 1e-4);  // it has an effect
  }
}

TEST_P(XlaTwo, AStepIsOneLaunchAndItsMetricsStayOnTheDevices) {
  const Strategy strategy = xla();
  const auto scope = strategy.scope();
  Model model = compiled();
  std::vector<int> fetched;
  for (const int64_t examples : {48, 80}) {  // 3 and 5 steps
    const Dataset data = Dataset::from_tensor_slices(columns().rows(0, examples)).batch(16);
    model.fit(data, {.verbose = Verbose::kSilent});
    const cohort::testing::CountingRunner::Scope counting;
    model.fit(data, {.verbose = Verbose::kSilent});
    EXPECT_EQ(counting->launches.size(), static_cast<std::size_t>(examples / 16));
    EXPECT_EQ(counting->alone, 0);
    fetched.push_back(counting->fetched);
  }
  EXPECT_EQ(fetched[0], fetched[1]);
}

TEST_P(XlaTwo, TheFirstStepIsTheProgramOfAllSteps) {
  const Strategy strategy = xla();
  const auto scope = strategy.scope();
  Model model = compiled();
  const cohort::testing::CountingRunner::Scope counting;
  model.fit(Dataset::from_tensor_slices(columns().rows(0, 80)).batch(16), {.epochs = 2, .verbose = Verbose::kSilent});
  EXPECT_EQ(counting->launches.size(), 11U);  // the slots are made first
  EXPECT_EQ(counting->programs.size(), 2U);
}

TEST_P(XlaTwo, Variables) {
  const Strategy strategy = xla();
  const auto scope = strategy.scope();
  const Variable sum = strategy.variable(torch::zeros({2}), {.aggregation = VariableAggregation::kSum});
  const Variable own = strategy.variable(torch::zeros({2}), {.synchronization = VariableSynchronization::kOnRead,
                                                             .aggregation = VariableAggregation::kMean});
  for (int step = 0; step < 2; ++step) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor one = torch::full({2}, replica.id() + 1.0, torch::TensorOptions().device(replica.device()));
      sum.assign_add(one);
      own.assign_add(one * 2);
    });
  }
  EXPECT_TRUE(sum.read().cpu().equal(torch::full({2}, 6.0))) << sum.read();
  EXPECT_TRUE(own.read().cpu().equal(torch::full({2}, 6.0))) << own.read();
}

TEST_P(XlaTwo, ATpuStrategyTakesTheDevicesOfAnAssignment) {
  const auto resolver = std::make_shared<TPUClusterResolver>("local");
  const TpuTopology topology = tpu_initialize(resolver, "cpu");
  EXPECT_EQ(topology.mesh_shape(), (std::vector<int64_t>{kDevices, 1, 1, 1}));
  const TPUStrategy last(
      resolver, {.plugin = "cpu", .device_assignment = DeviceAssignment(topology, {{{7, 0, 0, 0}}, {{2, 0, 0, 0}}})});
  const auto devices = last.run([](Replica& replica) { return replica.device().str(); });
  EXPECT_EQ(last.local_results(devices), (std::vector<std::string>{"xla:7", "xla:2"}));
  const auto sums = last.run([](Replica& replica) {
    return replica.all_reduce(ReduceOp::kSum, torch::ones({1}, torch::TensorOptions().device(replica.device())));
  });
  EXPECT_EQ(last.local_results(sums)[1].cpu().item<double>(), 2.0);

  const auto refused = [&](const TPUStrategyOptions& options) { TPUStrategy(resolver, options); };
  const auto pair = DeviceAssignment(topology, {{{0, 0, 0, 0}, {1, 0, 0, 0}}});
  EXPECT_THROW(refused({.plugin = "cpu", .num_devices = 1, .device_assignment = pair}), InvalidArgument);
  const auto elsewhere = DeviceAssignment::build(TpuTopology({1, 1, 1, 2}, {{{0, 0, 0, 0}, {0, 0, 0, 1}}}));
  EXPECT_THROW(refused({.plugin = "cpu", .device_assignment = elsewhere}), InvalidArgument);
}

TEST_P(XlaTwo, WhatCannotBeIsNamed) {
  EXPECT_THROW(XlaStrategy({.plugin = "cpu", .num_devices = 2, .plugin_options = "cpu_device_count=3"}),
               FailedPrecondition);
  EXPECT_EQ(XlaStrategy({.plugin = "cpu", .num_devices = 3}).num_replicas_in_sync(), 3);  // of those that are open
  EXPECT_THROW(xla(kDevices + 1), InvalidArgument);
  EXPECT_THROW(XlaStrategy({.plugin = "cpu", .num_devices = -1}), InvalidArgument);
  EXPECT_THROW(MirroredStrategy({.devices = {"/XLA:0", "/CPU:0"}}), InvalidArgument);
  EXPECT_THROW(TPUStrategy(std::make_shared<TPUClusterResolver>("grpc://10.0.0.1:8470")), Unimplemented);
  EXPECT_THROW(TPUClusterResolver("grpc://10.0.0.1"), InvalidArgument);
  const Strategy central = CentralStorageStrategy({.compute_devices = {"/XLA:0", "/XLA:1"}});
  const auto net = central.mirror([] { return torch::nn::Linear(2, 1); });
  EXPECT_THROW(central.optimizer(net, SGD()), Unimplemented);
}

INSTANTIATE_TEST_SUITE_P(Replicas, XlaTwo, ::testing::Values(2));

}  // namespace
}  // namespace cohort::equivalence::xla_test
