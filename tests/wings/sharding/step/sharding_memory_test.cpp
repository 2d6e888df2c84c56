// The bytes that a replica has of parameters, gradients and slots, read from LibTorch's allocator, beside the formulas
// of docs/parallelism.md. The replicas are threads, or processes that `cohort launch` starts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <exception>
#include <utility>

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/memory_limit.h"

namespace cohort::sharding_memory_test {
namespace {

using testing::CountingAllocator;

constexpr int kLayers = 80;
constexpr int64_t kWidth = 128;
constexpr int64_t kLayerBytes = 4 * kWidth * kWidth;
constexpr double kPsi = kLayers * (kWidth * kWidth + kWidth);

// A layer is a small part of the whole, and one row of activations is nothing beside it.
torch::nn::Sequential deep_net(int64_t width = kWidth) {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(width, width));
    net->push_back(torch::nn::Tanh());
  }
  return net;
}

// Returns the most bytes that a local replica has at once in a step, on average over those of this process.
double bytes_in_a_step(const Strategy& strategy, const Optimizer& rule, StateBytes* counted = nullptr) {
  CountingAllocator::install();
  const int64_t before = CountingAllocator::live();
  const auto net = strategy.mirror([] { return deep_net(); });
  const auto adam = strategy.optimizer(net, rule);
  const auto step = [&] {
    strategy.run([&](Replica& replica) {
      adam[replica].minimize(replica.global_mean(net[replica]->forward(torch::ones({1, kWidth})).sum(1)));
    });
  };
  step();
  CountingAllocator::begin_peak();
  step();
  step();
  if (counted != nullptr) *counted = adam.state_bytes();
  return static_cast<double>(CountingAllocator::peak() - before) / strategy.num_local_replicas();
}

void expect_near(double bytes, double formula) {
  EXPECT_GT(bytes, 0.95 * formula);
  EXPECT_LT(bytes, 1.05 * formula);
}

// Returns the formula of docs/parallelism.md.
double formula_of(int stage, int replicas) {
  if (stage == 3) return 16 * kPsi / replicas + 2 * 2 * kLayerBytes;  // and two units of parameters and gradients
  return stage == 1 ? 8 * kPsi + 8 * kPsi / replicas : 4 * kPsi + 12 * kPsi / replicas;
}

ShardingOptions sharding_of(int stage) {
  if (stage < 3) return {.stage = stage};
  return {.stage = stage, .min_unit_bytes = kLayerBytes};
}

TEST(ShardingMemory, IsWhatTheFormulasSay) {
  for (const auto& [stage, replicas] :
       {std::pair(1, 2), std::pair(1, 4), std::pair(2, 2), std::pair(2, 4), std::pair(3, 2), std::pair(3, 4)}) {
    SCOPED_TRACE(c10::str("stage ", stage, ", ", replicas, " replicas"));
    const MirroredStrategy strategy(
        {.devices = cpu_devices(replicas),
         .exchange = {.cross_device_ops = "reduction_to_one_device", .bytes_per_pack = stage == 3 ? 0 : kLayerBytes},
         .sharding = sharding_of(stage)});
    StateBytes bytes;
    const double formula = formula_of(stage, replicas);
    expect_near(bytes_in_a_step(strategy, Adam(), &bytes), formula);
    // What is counted of the largest replica is the same.
    expect_near(static_cast<double>(bytes.parameters + bytes.gradients + bytes.slots), formula);
  }
}

// Replicas keep the sums of accumulated calls of their shard alone, beside those of the call that is added.
TEST(ShardingMemory, OfStage2WithAccumulationIsAnotherShard) {
  const MirroredStrategy strategy(
      {.devices = cpu_devices(4), .exchange = {.bytes_per_pack = kLayerBytes}, .sharding = {.stage = 2}});
  expect_near(bytes_in_a_step(strategy, Adam({.gradient = {.gradient_accumulation_steps = 2}})),
              4 * kPsi + 16 * kPsi / 4);
}

void expect_formula_in_this_process(int stage) {
  MultiWorkerOptions options{.devices = {"/CPU:0"}, .sharding = sharding_of(stage)};
  if (stage < 3) options.communication.bytes_per_pack = kLayerBytes;
  if (stage > 1) options.communication.overlap = true;
  const MultiWorkerMirroredStrategy strategy(options);
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  expect_near(bytes_in_a_step(strategy, Adam()), formula_of(stage, 2));
}

TEST(ShardingMemoryInProcesses, OfStage1IsWhatTheFormulaSays) {
  expect_formula_in_this_process(1);
}

TEST(ShardingMemoryInProcesses, OfStage2IsWhatTheFormulaSays) {
  expect_formula_in_this_process(2);
}

TEST(ShardingMemoryInProcesses, OfStage3IsWhatTheFormulaSays) {
  expect_formula_in_this_process(3);
}

// Makes a model of this width and trains it for three steps.
void train(const Strategy& strategy, int64_t width) {
  const auto net = strategy.mirror([&] { return deep_net(width); });
  const auto adam = strategy.optimizer(net, Adam());
  for (int i = 0; i < 3; ++i) {
    strategy.run([&](Replica& replica) {
      adam[replica].minimize(replica.global_mean(net[replica]->forward(torch::ones({1, width})).sum(1)));
    });
  }
}

// The process may have 11 bytes a parameter, where stage 3 on two has 8 and one process alone 16.
TEST(ShardingMemoryInProcesses, OfStage3IsEnoughForAModelThatOneProcessMayNotHave) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory does not fit under the limit";
#endif
  constexpr int64_t kWide = 400;
  constexpr int64_t kParameters = kLayers * (kWide * kWide + kWide);
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}, .sharding = sharding_of(3)});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  train(strategy, 8);  // its threads are there
  testing::limit_memory(11 * kParameters);
  train(strategy, kWide);
  EXPECT_THROW(train(OneDeviceStrategy("/CPU:0"), kWide), std::exception) << "stage 0 has 16 bytes a parameter";
}

}  // namespace
}  // namespace cohort::sharding_memory_test
