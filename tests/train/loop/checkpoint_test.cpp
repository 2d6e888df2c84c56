// A loop of one's own that is interrupted and goes on ends with the bits of one that was not.
#include "cohort/train/training_checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>

#include "cohort/cohort.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::checkpoint_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using testing::with_workers;

struct NetImpl : torch::nn::Module {
  NetImpl()
      : hidden(register_module("hidden", torch::nn::Linear(4, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        head(register_module("head", torch::nn::Linear(8, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(norm(hidden(x)))); }
  torch::nn::Linear hidden;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
};
TORCH_MODULE(Net);

Dataset batches() {  // five a pass
  const torch::Tensor x = torch::sin(torch::arange(60 * 4, torch::kFloat)).view({60, 4});
  return Dataset::from_tensor_slices(x, (x.sum(1) > 0).to(torch::kLong)).shuffle(30, {.seed = 3}).repeat().batch(12);
}

// Everything that a program with a loop of its own has.
struct Program {
  explicit Program(
      const Strategy& strategy, const std::filesystem::path& folder,
      const std::function<bool()>& told = [] { return false; })
      : strategy(strategy),
        net(strategy.mirror([] { return Net(); })),
        adam(strategy.optimizer(net, Adam({.learning_rate = 0.05, .gradient = {.gradient_accumulation_steps = 2}}))),
        seen(strategy.variable(torch::tensor(0.0), {.synchronization = VariableSynchronization::kOnRead,
                                                    .aggregation = VariableAggregation::kSum})),
        best(strategy.variable(torch::tensor(100.0))),
        data(strategy.distribute(batches()).iterator()),
        checkpoint(strategy, folder,
                   {.modules = {{"model", net}},
                    .optimizers = {{"optimizer", adam}},
                    .variables = {{"seen", seen}, {"best", best}}},
                   {.told = told}) {
    net.train();
    // Workers that are threads of one process draw from the same generator.
    std::vector<std::pair<std::string, torch::Tensor>> start;
    for (const auto& [name, tensor] : net.state()) {
      if (name.find("weight") != std::string::npos) {
        start.emplace_back(name, torch::cos(torch::arange(tensor.numel(), torch::kFloat)).view_as(tensor));
      } else {
        start.emplace_back(name, torch::zeros_like(tensor));
      }
    }
    net.load_state(start);
  }

  void step() {
    const auto batch = data.next();
    const auto losses = strategy.run(
        [&](Replica& replica, const Example& share) {
          const auto noise = torch::randn(share.x.sizes(), replica.generator(), torch::kFloat);
          const auto each = torch::nn::functional::cross_entropy(
              net[replica]->forward(share.x + 0.1 * noise), share.y,
              torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone));
          const auto loss = replica.global_mean(each);
          adam[replica].minimize(loss);
          seen.assign_add(torch::tensor(static_cast<float>(share.size())));
          return loss.detach();
        },
        *batch);
    best.assign(torch::minimum(best.read(), strategy.reduce(ReduceOp::kSum, losses)));
  }

  std::vector<torch::Tensor> result() {
    std::vector<torch::Tensor> all{seen.read(), best.read()};
    for (const auto& [name, tensor] : net.state()) all.push_back(tensor.clone());
    for (const auto& [name, tensor] : adam.state()) all.push_back(tensor);
    return all;
  }

  Strategy strategy;
  Mirrored<Net> net;
  MirroredOptimizer adam;
  Variable seen;
  Variable best;
  DistributedIterator data;
  Checkpoint checkpoint;
};

void expect_same(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], wanted[i])) << i;
}

constexpr int64_t kSteps = 9;
constexpr int64_t kCut = 5;  // between two updates

std::vector<torch::Tensor> undisturbed(const Strategy& strategy, const std::filesystem::path& folder) {
  strategy.set_seed(5);
  Program program(strategy, folder);
  program.adam.set_learning_rate(0.02);
  for (int64_t step = 0; step < kSteps; ++step) program.step();
  return program.result();
}

void interrupted(const Strategy& strategy, const std::filesystem::path& folder) {
  strategy.set_seed(5);
  Program program(strategy, folder);
  EXPECT_FALSE(program.checkpoint.restore(&program.data));
  program.adam.set_learning_rate(0.02);
  for (int64_t step = 0; step < kCut; ++step) program.step();
  program.checkpoint.save({.step = kCut, .values = {{"pass", "one"}}}, &program.data);
  program.checkpoint.wait();
  program.step();  // what comes after it is lost
}

std::vector<torch::Tensor> resumed(const Strategy& strategy, const std::filesystem::path& folder) {
  strategy.set_seed(77);
  Program program(strategy, folder);
  const auto progress = program.checkpoint.restore(&program.data);
  EXPECT_EQ(progress.value().step, kCut);
  EXPECT_EQ(progress->values, (std::map<std::string, std::string>{{"pass", "one"}}));
  for (int64_t step = kCut; step < kSteps; ++step) program.step();
  return program.result();
}

TEST(CheckpointTest, GoesOnBitForBit) {
  const TemporaryFolder folder;
  const auto wanted = undisturbed(MirroredStrategy({.devices = cpu_devices(2)}), folder / "undisturbed");
  interrupted(MirroredStrategy({.devices = cpu_devices(2)}), folder / "run");
  expect_same(resumed(MirroredStrategy({.devices = cpu_devices(2)}), folder / "run"), wanted);
}

TEST(CheckpointTest, GoesOnBitForBitWithSeveralWorkers) {
  const TemporaryFolder folder;
  std::vector<std::vector<torch::Tensor>> wanted(2);
  with_workers({.replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    wanted[static_cast<std::size_t>(strategy.worker_rank())] = undisturbed(strategy, folder / "undisturbed");
  });
  with_workers({.replicas = 2}, [&](const auto& strategy) { interrupted(strategy, folder / "run"); });
  with_workers({.replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    expect_same(resumed(strategy, folder / "run"), wanted[static_cast<std::size_t>(strategy.worker_rank())]);
  });
}

TEST(CheckpointTest, AnotherNumberOfReplicasTakesAllButTheirOwn) {
  const TemporaryFolder folder;
  interrupted(MirroredStrategy({.devices = cpu_devices(2)}), folder / "run");
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  Program program(strategy, folder / "run");
  EXPECT_EQ(program.checkpoint.restore(&program.data).value().step, kCut);
  EXPECT_EQ(program.adam.iterations(), kCut / 2);
  EXPECT_EQ(program.seen.read().item<float>(), 12.0F * kCut);
}

TEST(CheckpointTest, AllWorkersHearOfAPreemptionAfterTheSameStep) {
  const TemporaryFolder folder;
  std::vector<int64_t> left(2);
  with_workers({}, [&](const MultiWorkerMirroredStrategy& strategy) {
    int64_t step = 0;
    Program program(strategy, folder / "run", [&] { return strategy.worker_rank() == 1 && step == 2; });
    while (step < kSteps) {
      program.step();
      ++step;
      if (program.checkpoint.preempted(program.data)) break;
    }
    program.checkpoint.save({.step = step}, &program.data);
    program.checkpoint.wait();
    left[static_cast<std::size_t>(strategy.worker_rank())] = step;
  });
  EXPECT_EQ(left[0], left[1]);
  EXPECT_LE(left[0], 4);
  EXPECT_EQ(read_checkpoint(folder / "run" / ("ckpt-" + std::to_string(left[0]))).step, left[0]);
}

TEST(CheckpointTest, SigtermEndsTheProgramUnlessSomebodyAsks) {
  const auto handler = [] {
    struct sigaction now {};
    sigaction(SIGTERM, nullptr, &now);
    return now.sa_handler;
  };
  const TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(1)});
  const auto net = strategy.mirror([] { return Net(); });
  DistributedIterator input = strategy.distribute(batches()).iterator();
  {
    Checkpoint checkpoint(strategy, folder / "run", {.modules = {{"model", net}}});
    EXPECT_EQ(handler(), SIG_DFL);
    EXPECT_FALSE(checkpoint.preempted(input));
    EXPECT_NE(handler(), SIG_DFL);
    std::raise(SIGTERM);
    EXPECT_FALSE(checkpoint.preempted(input)) << "it travels with the next batch";
    (void)input.next();
    EXPECT_TRUE(checkpoint.preempted(input));
  }
  EXPECT_EQ(handler(), SIG_DFL);
}

TEST(CheckpointTest, WrongPartsAreNamed) {
  const TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const MirroredStrategy other({.devices = cpu_devices(1)});
  const auto net = strategy.mirror([] { return Net(); });
  const auto sgd = strategy.optimizer(net, SGD());
  const auto make = [&](CheckpointParts parts) { Checkpoint(strategy, folder / "run", std::move(parts)); };
  expect_error<InvalidArgument>(
      [&] {
        make({.modules = {{"a", net}}, .optimizers = {{"a", sgd}}});
      },
      "\"a\" is the name of two parts");
  expect_error<InvalidArgument>(
      [&] {
        make({.modules = {{"a", other.mirror([] { return Net(); })}}});
      },
      "\"a\" is empty, or made under another strategy");
  expect_error<InvalidArgument>([&] { make({.optimizers = {{"a", {}}}}); }, "\"a\" is empty");
  expect_error<InvalidArgument>(
      [&] {
        make({.variables = {{"v", other.variable(torch::ones({}))}}});
      },
      "the variable \"v\" is empty, or made under another strategy");
}

TEST(CheckpointTest, WhatDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Variable own = strategy.variable(torch::ones({2}), {.synchronization = VariableSynchronization::kOnRead});
  {
    Checkpoint checkpoint(strategy, folder / "run",
                          {.variables = {{"v", strategy.variable(torch::ones({2}))}, {"own", own}}});
    checkpoint.save({.step = 1});
    checkpoint.wait();
    expect_error<InvalidArgument>([&] { checkpoint.save({.values = {{"replicas", "2"}}}); }, "of the checkpoint's own");
  }
  const auto restore = [&](const Strategy& under, const std::map<std::string, Variable>& variables) {
    Checkpoint(under, folder / "run", {.variables = variables}).restore();
  };
  expect_error<InvalidArgument>(
      [&] {
        restore(strategy, {{"v", strategy.variable(torch::ones({3}))}, {"own", own}});
      },
      "the variable \"v\" has shape");
  expect_error<NotFound>(
      [&] {
        restore(strategy, {{"w", strategy.variable(torch::ones({2}))}, {"own", own}});
      },
      "no variable \"w\"");
  const MirroredStrategy three({.devices = cpu_devices(3)});
  const VariableOptions on_read{.synchronization = VariableSynchronization::kOnRead};
  expect_error<InvalidArgument>(
      [&] {
        restore(three, {{"own", three.variable(torch::ones({2}), on_read)}});
      },
      "has no aggregation");
}

}  // namespace
}  // namespace cohort::checkpoint_test
