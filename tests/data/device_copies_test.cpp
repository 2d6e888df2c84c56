#include "data/device_copies.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/access.h"
#include "cohort/distributed_dataset.h"
#include "cohort/optimizer.h"
#include "strategy/core.h"
#include "strategy/strategies/devices.h"
#include "tests/support/fake_device.h"

namespace cohort::device_copies_test {
namespace {

using std::chrono::milliseconds;
using testing::FakeDevice;

constexpr int64_t kRows = 10;

std::vector<LogicalDevice> two_cpus() {
  std::vector<LogicalDevice> devices;
  for (const std::string& name : cpu_devices(2)) devices.push_back(find_logical_device(name));
  return devices;
}

// Two replicas on the fake device.
Strategy on(const FakeDevice& device) {
  StrategyPlan plan = local_plan("fake", two_cpus());
  plan.backends = {&device, &device};
  return Access::make<Strategy>(std::make_shared<StrategyCore>(std::move(plan)));
}

Dataset numbers() {
  const torch::Tensor x = torch::arange(kRows, torch::kDouble).view({kRows, 1}) / 10.0;
  return Dataset::from_tensor_slices(x, 2.0 * x + 1.0).batch(4);
}

TEST(DeviceCopies, TheValuesAreThereOnceTheEventWasWaitedFor) {
  const FakeDevice device(milliseconds(10));
  const Strategy strategy = on(device);
  DeviceCopies copies(*Access::core(strategy), {});
  device.gate().close();
  const ArrivingShares step = copies.begin({{.x = torch::ones({2, 1})}, {.x = torch::ones({1, 1}) * 2.0}});
  EXPECT_EQ(device.counts().copies_done, 0) << "begin() returns at once";
  device.gate().open();
  step.wait();
  EXPECT_EQ(device.counts().copies_done, 2);
  // Read by this file's own code, in which the thread sanitizer sees a read that comes too early.
  EXPECT_EQ(step.shares[0].x.data_ptr<float>()[1], 1.0F);
  EXPECT_EQ(step.shares[1].x.data_ptr<float>()[0], 2.0F);
}

TEST(DeviceCopies, OnTheHostASharesMemoryIsTheDatasets) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  DeviceCopies copies(*Access::core(strategy), {});
  const Shares shares = {{.x = torch::ones({2, 1})}, {.x = torch::ones({1, 1})}};
  const ArrivingShares step = copies.begin(shares);
  EXPECT_TRUE(step.arrivals.empty());
  step.wait();
  EXPECT_TRUE(step.shares[1].x.is_same(shares[1].x));
}

// Two epochs of a linear regression; the parameters afterwards.
std::vector<torch::Tensor> trained(const Strategy& strategy, int64_t prefetch_steps) {
  torch::manual_seed(3);
  auto net = strategy.mirror([] {
    torch::nn::Linear linear(1, 1);
    linear->to(torch::kDouble);
    return linear;
  });
  auto optimizer = strategy.optimizer(net, SGD({.learning_rate = 0.1}));
  const DistributedDataset data = strategy.distribute(numbers(), {.prefetch_steps = prefetch_steps});
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const GlobalBatch& batch : data) {
      strategy.run(
          [&](Replica& replica, const Example& share) {
            optimizer[replica].minimize(replica.global_mean((net[replica]->forward(share.x) - share.y).square()));
          },
          batch);
    }
  }
  std::vector<torch::Tensor> values;
  for (const auto& [name, tensor] : net.state()) values.push_back(tensor.clone());
  return values;
}

TEST(DeviceCopies, TrainingWithLateCopiesGivesTheBitsOfTheHost) {
  const std::vector<torch::Tensor> on_host = trained(MirroredStrategy({.devices = cpu_devices(2)}), 2);
  for (const int64_t prefetch_steps : {0, 1, 3}) {
    const FakeDevice device(milliseconds(3));
    const std::vector<torch::Tensor> late = trained(on(device), prefetch_steps);
    for (std::size_t i = 0; i < on_host.size(); ++i) EXPECT_TRUE(torch::equal(late[i], on_host[i])) << prefetch_steps;
    constexpr int kSteps = 6;  // two epochs of three
    EXPECT_EQ(device.counts().copies_begun, kSteps * 2 * 2) << "x and y of each share";
    EXPECT_GE(device.counts().waits, kSteps * 2);
    EXPECT_EQ(device.counts().flushes, kSteps * 2 * 2) << "a step's end and the end of its function";
  }
}

TEST(DeviceCopies, APositionIsSavedWithTheStepsThatAreUnderWay) {
  const FakeDevice device(milliseconds(10));
  const Strategy strategy = on(device);
  const DistributedDataset data = strategy.distribute(numbers(), {.prefetch_steps = 3});
  DistributedIterator first = data.iterator();
  ASSERT_TRUE(first.next());
  const std::string position = first.save();
  DistributedIterator second = data.iterator();
  second.restore(position);
  for (int step = 1; step < 3; ++step) {
    const auto expected = first.next();
    const auto restored = second.next();
    ASSERT_TRUE(expected && restored);
    for (std::size_t r = 0; r < 2; ++r) EXPECT_TRUE(torch::equal((*expected)[r].x, (*restored)[r].x));
  }
  EXPECT_FALSE(second.next());
}

}  // namespace
}  // namespace cohort::device_copies_test
