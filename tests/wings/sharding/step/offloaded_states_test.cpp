// States of replicas that lie in the host's memory (ShardingOptions::offload_states), on devices that need no card.
// tests/gpu/offload_test.cpp has the steps of cards.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/optimizer.h"
#include "cohort/strategy.h"
#include "strategy/core.h"
#include "strategy/strategies/devices.h"
#include "tests/support/fake_device.h"

namespace cohort::offloaded_states_test {
namespace {

// Returns the weights after some steps whose gradients differ from replica to replica.
std::vector<torch::Tensor> trained(const Strategy& strategy, StateBytes& bytes) {
  const auto net = strategy.mirror([] {
    torch::nn::Sequential made(torch::nn::Linear(33, 61), torch::nn::Tanh(), torch::nn::Linear(61, 3));
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& p : made->parameters()) p.copy_(torch::sin(torch::arange(p.numel())).view_as(p) * 0.1);
    return made;
  });
  auto optimizer = strategy.optimizer(net, Adam({.gradient = {.global_clipnorm = 0.1}}));
  for (int step = 0; step < 3; ++step) {
    strategy.run([&](Replica& replica) {
      const torch::Tensor x =
          torch::cos(torch::arange(66) * (1.0 + step + 0.1 * replica.id())).view({2, 33}).to(replica.device());
      optimizer[replica].minimize(replica.global_mean(net[replica]->forward(x).square().sum(1)));
    });
  }
  bytes = optimizer.state_bytes();
  std::vector<torch::Tensor> weights;
  for (const auto& [name, tensor] : net.state()) weights.push_back(tensor.cpu().clone());
  return weights;
}

ShardingOptions sharding_of(int stage, bool offloads) {
  ShardingOptions sharding{.stage = stage, .offload_states = offloads};
  if (stage == 3) sharding.min_unit_bytes = 0;
  return sharding;
}

Strategy on_cpus(int stage, bool offloads) {
  return MirroredStrategy({.devices = cpu_devices(2),
                           .exchange = {.cross_device_ops = "reduction_to_one_device"},
                           .sharding = sharding_of(stage, offloads)});
}

void expect_same(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(torch::equal(got[i], wanted[i])) << i;
}

TEST(OffloadedStates, OfReplicasOnCpusAreWhereTheyAre) {
  for (const int stage : {1, 3}) {
    StateBytes with, without;
    expect_same(trained(on_cpus(stage, true), with), trained(on_cpus(stage, false), without));
    EXPECT_EQ(with.offloaded, 0);
    EXPECT_EQ(with.slots, without.slots);
  }
}

TEST(OffloadedStates, OfAllVisibleDevices) {
  const MirroredStrategy strategy({.sharding = {.stage = 2, .offload_states = true}});
  StateBytes bytes;
  for (const torch::Tensor& each : trained(strategy, bytes)) EXPECT_TRUE(torch::isfinite(each).all().item<bool>());
  EXPECT_GT(bytes.slots + bytes.offloaded, 0);
}

// Whoever reads a copy to the host before it has been waited for reads other numbers, and the thread sanitizer says so.
TEST(OffloadedStates, WaitForLateCopies) {
  const testing::FakeDevice device(std::chrono::milliseconds(1));
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    std::vector<LogicalDevice> cpus;
    for (const std::string& name : cpu_devices(2)) cpus.push_back(find_logical_device(name));
    StrategyPlan plan = local_plan("fake", cpus);
    plan.backends = {&device, &device};
    plan.exchange.cross_device_ops = "reduction_to_one_device";
    plan.sharding = sharding_of(stage, true);
    StateBytes late, on_time;
    expect_same(trained(Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan))), late),
                trained(on_cpus(stage, false), on_time));
    EXPECT_EQ(late.slots, 0);
    EXPECT_GT(late.offloaded, on_time.slots);
  }
}

}  // namespace
}  // namespace cohort::offloaded_states_test
