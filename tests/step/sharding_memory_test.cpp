// The bytes that a replica has of parameters, gradients and slots, read from LibTorch's allocator, beside the formulas
// of docs/parallelism.md. The replicas are threads, or processes that `cohort launch` starts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "tests/support/counting_allocator.h"

namespace cohort::sharding_memory_test {
namespace {

using testing::CountingAllocator;

constexpr int kLayers = 80;
constexpr int64_t kWidth = 128;
constexpr int64_t kLayerBytes = 4 * kWidth * kWidth;
constexpr double kPsi = kLayers * (kWidth * kWidth + kWidth);

// A layer is a small part of the whole, and one row of activations is nothing beside it.
torch::nn::Sequential deep_net() {
  torch::nn::Sequential net;
  for (int i = 0; i < kLayers; ++i) {
    net->push_back(torch::nn::Linear(kWidth, kWidth));
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
  return stage == 1 ? 8 * kPsi + 8 * kPsi / replicas : 4 * kPsi + 12 * kPsi / replicas;
}

TEST(ShardingMemory, IsWhatTheFormulasSay) {
  for (const auto& [stage, replicas] : {std::pair(1, 2), std::pair(1, 4), std::pair(2, 2), std::pair(2, 4)}) {
    SCOPED_TRACE(c10::str("stage ", stage, ", ", replicas, " replicas"));
    const MirroredStrategy strategy(
        {.devices = cpu_devices(replicas),
         .exchange = {.cross_device_ops = "reduction_to_one_device", .bytes_per_pack = kLayerBytes},
         .sharding = {.stage = stage}});
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
  MultiWorkerOptions options{.devices = {"/CPU:0"}, .sharding = {.stage = stage}};
  options.communication.bytes_per_pack = kLayerBytes;
  options.communication.overlap = true;
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

}  // namespace
}  // namespace cohort::sharding_memory_test
