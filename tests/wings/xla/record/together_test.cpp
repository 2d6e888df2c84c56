// Several devices as the replicas of one program: sums over them, programs that differ, values that are read too early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/record/host_runner.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {
namespace together_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<torch::Device> kDevices = {torch::Device(torch::kXLA, 0), torch::Device(torch::kXLA, 1)};

class TogetherTest : public ::testing::Test {
 protected:
  TogetherTest() {
    install_recorder({.devices = 2});
    set_runner(runner_);
    torch::manual_seed(1);
  }
  ~TogetherTest() override { set_runner(nullptr); }

  std::shared_ptr<HostRunner> runner_ = std::make_shared<HostRunner>();
};

// A weight on each device, and a step whose gradient is the sum over the rows of all devices.
struct Replicas {
  Replicas() {
    for (const torch::Device device : kDevices) weights.push_back(torch::ones({3}, device));
    flush_together(kDevices);
  }
  void step(std::size_t replica, const torch::Tensor& rows) {
    weights[replica].sub_(all_reduce(rows.to(kDevices[replica]).mul(weights[replica]).sum(0)), 0.1);
  }
  std::vector<torch::Tensor> weights;
};

TEST_F(TogetherTest, OneLaunchHasTheSumsInside) {
  Replicas replicas;
  const std::size_t before = runner_->ran().size();
  torch::Tensor wanted = torch::ones({3});
  for (int step = 0; step < 3; ++step) {
    const torch::Tensor rows = torch::randn({4, 3});
    replicas.step(0, rows.narrow(0, 0, 2));
    replicas.step(1, rows.narrow(0, 2, 2));
    flush_together(kDevices);
    wanted.sub_(rows.mul(wanted).sum(0), 0.1);
  }
  EXPECT_THAT(
      std::vector<int>(runner_->replicas().begin() + static_cast<std::ptrdiff_t>(before), runner_->replicas().end()),
      ElementsAre(2, 2, 2));
  EXPECT_EQ(runner_->ran()[before + 1], runner_->ran()[before + 2]);
  for (const torch::Tensor& weight : replicas.weights) EXPECT_TRUE(weight.cpu().allclose(wanted)) << weight.cpu();
}

TEST_F(TogetherTest, SharesOfDifferentSizesAreSummedOnTheHost) {
  Replicas replicas;
  const std::size_t before = runner_->ran().size();
  const torch::Tensor rows = torch::randn({4, 3});
  replicas.step(0, rows.narrow(0, 0, 3));
  replicas.step(1, rows.narrow(0, 3, 1));
  flush_together(kDevices);
  const torch::Tensor wanted = 1.0 - 0.1 * rows.sum(0);
  EXPECT_THAT(
      std::vector<int>(runner_->replicas().begin() + static_cast<std::ptrdiff_t>(before), runner_->replicas().end()),
      ElementsAre(1, 1, 1, 1));  // the summands of each, then the rest of each
  for (const torch::Tensor& weight : replicas.weights) EXPECT_TRUE(weight.cpu().allclose(wanted)) << weight.cpu();
}

// The host's runner, which looks while it takes a value at what waits on the device.
class Looking final : public HostRunner {
 public:
  std::shared_ptr<DeviceData> place(const torch::Tensor& host, int device) override {
    most_pending = std::max(most_pending, recording_of(torch::Device(torch::kXLA, 0)).pending());
    return HostRunner::place(host, device);
  }
  std::size_t most_pending = 0;
};

// The input of the next step comes by another thread. If it left work pending for a moment, the program of the step
// would sometimes have that, too, and not be the other replica's.
TEST_F(TogetherTest, InputThatArrivesIsNeverPending) {
  const Replicas replicas;
  const auto looking = std::make_shared<Looking>();
  set_runner(looking);
  for (const torch::Tensor& host :
       {torch::randn({2, 3}), torch::randn({3, 2}).t(), torch::randn({4, 6}).slice(1, 0, 6, 2),
        torch::randn({2, 3, 4, 5}).contiguous(torch::MemoryFormat::ChannelsLast)}) {
    const torch::Tensor there = put(host, kDevices[0]);
    EXPECT_EQ(looking->most_pending, 0U);
    EXPECT_EQ(there.strides(), host.to(kDevices[0]).strides());
    EXPECT_TRUE(there.cpu().equal(host));
    looking->most_pending = 0;
  }
}

TEST_F(TogetherTest, NothingPendingBeginsNothing) {
  Replicas replicas;
  const std::size_t before = runner_->ran().size();
  flush_together(kDevices);
  EXPECT_EQ(runner_->ran().size(), before);
}

TEST_F(TogetherTest, ASumCannotBeReadBeforeAllHaveCome) {
  Replicas replicas;
  replicas.step(0, torch::ones({1, 3}));
  EXPECT_THAT(testing::error_of<FailedPrecondition>([&] { replicas.weights[0].cpu(); }),
              HasSubstr("the value of a sum over replicas was asked for on xla:0 alone"));
  replicas.step(1, torch::ones({1, 3}));
  flush_together(kDevices);
  EXPECT_TRUE(replicas.weights[0].cpu().allclose(torch::full({3}, 0.8)));
}

TEST_F(TogetherTest, ReplicasWithDifferentSumsAreNamed) {
  Replicas replicas;
  replicas.step(0, torch::ones({1, 3}));
  EXPECT_THAT(testing::error_of<FailedPrecondition>([&] { flush_together(kDevices); }),
              HasSubstr("xla:1 waits for 0 sums over replicas, xla:0 for 1"));
  replicas.step(1, torch::ones({1, 3}));
  flush_together(kDevices);
}

}  // namespace
}  // namespace together_test
}  // namespace cohort::record
