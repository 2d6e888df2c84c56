// fit(), evaluate() and predict() with parameter servers: what one device gives, and checkpoints that both read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/server_cluster.h"

namespace cohort::server_fit_test {
namespace {

using testing::expect_error;
using testing::ServerCluster;
using testing::ServerClusterOptions;
using testing::TemporaryFolder;

constexpr int64_t kRows = 50;

Dataset batches() {
  const torch::Tensor x = torch::sin(torch::arange(kRows * 4, torch::kDouble)).view({kRows, 4});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong))
      .shuffle(30, {.seed = 3})
      .batch(12);  // 5 a pass
}

struct Kind {
  Optimizer rule = Adam({.learning_rate = 0.05});
  bool normalized = false;
};

// The model has weights of its own: the tasks are threads, which draw from LibTorch's generator in any order.
Sequential model(const Kind& kind) {
  std::vector<Layer> layers = {Dense(8), Activation(Activation::kRelu), Dense(2)};
  if (kind.normalized) layers.insert(layers.begin() + 1, BatchNormalization());
  Sequential made(layers, {.dtype = torch::kDouble});
  made.build({4});
  made.compile({.optimizer = kind.rule,
                .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                .metrics = {SparseCategoricalAccuracy()}});
  NamedTensors weights = made.weights();
  for (auto& [name, tensor] : weights) {
    if (name.starts_with("dense"))
      tensor = torch::cos(torch::arange(tensor.numel(), torch::kDouble)).view(tensor.sizes());
  }
  made.set_weights(weights);
  return made;
}

struct Outcome {
  std::vector<double> losses;
  NamedTensors weights;
  Logs evaluation;
  torch::Tensor predictions;
  int64_t iterations = 0;
};

Outcome train(Sequential& net, const FitOptions& options) {
  FitOptions quiet = options;
  quiet.verbose = Verbose::kSilent;
  quiet.validation_data = batches();
  const History history = net.fit(batches(), quiet);
  return {.losses = history.epochs().empty() ? std::vector<double>() : history["loss"],
          .weights = net.weights(),
          .evaluation = net.evaluate(batches(), {.verbose = Verbose::kSilent}),
          .predictions = net.predict(batches()),
          .iterations = net.optimizer().iterations()};
}

Outcome alone(const Kind& kind, const FitOptions& options) {
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Sequential net = model(kind);
  return train(net, options);
}

Outcome on_servers(const ServerClusterOptions& cluster, const Kind& kind, const FitOptions& options) {
  Outcome outcome;
  ServerCluster(cluster).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    Sequential net = model(kind);
    if (strategy.serve()) return;
    outcome = train(net, options);
  });
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& wanted, double tolerance) {
  EXPECT_EQ(got.iterations, wanted.iterations);
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i) EXPECT_NEAR(got.losses[i], wanted.losses[i], 1e-9 + tolerance);
  ASSERT_EQ(got.weights.size(), wanted.weights.size());
  for (std::size_t i = 0; i < got.weights.size(); ++i) {
    const auto& [name, tensor] = got.weights[i];
    EXPECT_LE((tensor - wanted.weights[i].second).abs().max().item<double>(), tolerance) << name;
  }
  EXPECT_NEAR(got.evaluation["loss"], wanted.evaluation["loss"], 1e-9 + tolerance);
  EXPECT_TRUE(torch::allclose(got.predictions, wanted.predictions, 0.0, 1e-9 + tolerance));
}

TEST(ServerFit, OneWorkerIsOneDevice) {
  expect_same(on_servers({.servers = 2}, {}, {.epochs = 3}), alone({}, {.epochs = 3}), 0.0);
}

TEST(ServerFit, StatisticsAreKeptByTheServers) {
  const Kind kind{.normalized = true};
  const Outcome wanted = alone(kind, {.epochs = 3});
  expect_same(on_servers({}, kind, {.epochs = 3}), wanted, 1e-12);
  // No part of any of several workers is lost.
  const Outcome got = on_servers({.workers = 2}, kind, {.epochs = 3});
  int statistics = 0;
  for (std::size_t i = 0; i < got.weights.size(); ++i) {
    const auto& [name, tensor] = got.weights[i];
    if (name.find("moving") == std::string::npos && name.find("running") == std::string::npos) continue;
    EXPECT_TRUE(torch::allclose(tensor, wanted.weights[i].second, 0.5, 0.5)) << name << tensor;
    ++statistics;
  }
  EXPECT_EQ(statistics, 2);
  EXPECT_LT(got.losses.back(), got.losses.front());
}

TEST(ServerFit, SynchronousWorkersAreOneDevice) {
  const ParameterServerOptions options{.variable_partitioner = FixedShardsPartitioner(2),
                                       .consistency = {.kind = Consistency::Kind::kSynchronous}};
  const ServerClusterOptions cluster{.servers = 2, .workers = 3, .strategy = options};
  expect_same(on_servers(cluster, {}, {.epochs = 3}), alone({}, {.epochs = 3}), 1e-9);
}

TEST(ServerFit, SeveralReplicasAWorker) {
  const ServerClusterOptions cluster{.strategy = {.devices = cpu_devices(2)}};
  expect_same(on_servers(cluster, {}, {.epochs = 2}), alone({}, {.epochs = 2}), 1e-9);
}

TEST(ServerFit, RatesThatCallbacksSetReachTheServers) {
  const auto options = [] {
    return FitOptions{
        .epochs = 3,
        .callbacks = {LearningRateScheduler([](int64_t epoch, double) { return epoch == 1 ? 0.0 : 0.1; })}};
  };
  const Kind kind{.rule = SGD({.learning_rate = 0.5, .momentum = 0.9})};
  expect_same(on_servers({.servers = 2, .strategy = {.replicas = 2}}, kind, options()), alone(kind, options()), 0.0);
}

// The workers would go on with what they were compiled with.
TEST(ServerFit, CompileIsRefusedAfterServe) {
  ServerCluster(ServerClusterOptions{}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    Sequential net = model({});
    if (strategy.serve()) return;
    const CallbackPtr compile = LambdaCallback({.on_epoch_begin = [](const RunInfo& run) {
      if (run.epoch == 1) run.model.compile({.optimizer = SGD(), .loss = "mse"});
    }});
    expect_error<FailedPrecondition>(
        [&] { net.fit(batches(), {.epochs = 2, .callbacks = {compile}, .verbose = Verbose::kSilent}); }, "serve()");
  });
}

TEST(ServerFit, GoesOnFromCheckpointsOfOneDeviceAndTheOtherWayRound) {
  const Kind kind{.normalized = true};
  Outcome wanted = alone(kind, {.epochs = 4});
  const auto save_into = [](const TemporaryFolder& folder) {
    return ModelCheckpoint({.filepath = (folder.path() / "at-{epoch}").string(), .save_weights_only = false});
  };
  const auto resume_from = [](const std::filesystem::path& checkpoint) {
    return LambdaCallback({.on_train_begin = [checkpoint](const RunInfo& run) {
      EXPECT_TRUE(run.training->resume([&] { return read_checkpoint(checkpoint).data; }));
    }});
  };
  wanted.losses = {wanted.losses.begin() + 2, wanted.losses.end()};

  const TemporaryFolder first;
  (void)on_servers({}, kind, {.epochs = 2, .callbacks = {save_into(first)}});
  expect_same(alone(kind, {.epochs = 4, .callbacks = {resume_from(first.path() / "at-2")}}), wanted, 1e-12);

  const TemporaryFolder second;
  (void)alone(kind, {.epochs = 2, .callbacks = {save_into(second)}});
  const FitOptions resumed{.epochs = 4, .callbacks = {resume_from(second.path() / "at-2")}};
  expect_same(on_servers({.servers = 2}, kind, resumed), wanted, 1e-12);
}

TEST(ServerFit, LoadedWeightsReachTheServers) {
  ServerCluster({}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    Sequential net = model({});
    if (strategy.serve()) return;
    const NamedTensors before = net.weights();
    (void)net.fit(batches(), {.epochs = 2, .verbose = Verbose::kSilent});
    net.set_weights(before);
    const Logs logs =
        net.train_on_batch({.x = torch::zeros({1, 4}, torch::kDouble), .y = torch::zeros({1}, torch::kLong)});
    // The first loss of these weights: biases count alone.
    net.set_weights(before);
    const Logs same =
        net.test_on_batch({.x = torch::zeros({1, 4}, torch::kDouble), .y = torch::zeros({1}, torch::kLong)});
    EXPECT_DOUBLE_EQ(logs["loss"], same["loss"]);
    EXPECT_EQ(net.optimizer().iterations(), 11);
  });
}

TEST(ServerFit, WhatIsWrongIsSaid) {
  ServerCluster({}).run([&](const ParameterServerOptions& own) {
    const ParameterServerStrategy strategy(own);
    const auto scope = strategy.scope();
    Sequential net = model({.rule = SGD({.gradient = {.gradient_accumulation_steps = 2}})});
    if (strategy.task().type != "chief") {
      expect_error<FailedPrecondition>([&] { (void)net.fit(batches(), {}); }, "if (strategy.serve()) return 0;");
      strategy.serve();
      return;
    }
    expect_error<FailedPrecondition>([&] { (void)net.fit(batches(), {}); }, "serve() comes first");
    strategy.serve();
    expect_error<InvalidArgument>([&] { (void)net.fit(batches(), {.verbose = Verbose::kSilent}); },
                                  "gradient_accumulation_steps is 2");
    expect_error<Unimplemented>([&] { ModelTrainer(net, {.train = batches(), .ema = {.average_decay = 0.9}}); },
                                "ema has no meaning under parameter servers");
    expect_error<Unimplemented>(
        [&] { ModelTrainer(net, {.train = batches(), .stages = {2}, .begin_stage = [](auto) {}}); },
        "stages are not for parameter servers");
    const ClusterCoordinator coordinator(strategy);  // lets the others go
    expect_error<Unimplemented>([&] { net.optimizer().set_learning_rate(CosineDecay({})); }, "not the schedule");
  });
}

}  // namespace
}  // namespace cohort::server_fit_test
