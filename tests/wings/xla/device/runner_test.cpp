// Launches of the runner that are queued: how far ahead of the devices the host may be. By the tests' own plugin.
#include "wings/xla/device/runner.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/xla/device/fake_plugin_test.h"
#include "wings/xla/record/recorder.h"

namespace cohort::runner_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

using namespace std::chrono_literals;  // NOLINT: for literals

constexpr int kDevices = 4;

class XlaRunnerTest : public testing::FakePluginTest {
 protected:
  XlaRunnerTest() {
    record::install_recorder({.devices = kDevices});
    for (int i = 0; i < kDevices; ++i) devices_.emplace_back(torch::kXLA, static_cast<c10::DeviceIndex>(i));
    fake().devices = kDevices;
    fake().replicas = kDevices;
    fake().donated = {0};
    fake().optimized = testing::program_of_four(/*donates=*/true);
  }
  ~XlaRunnerTest() override { record::set_runner(nullptr); }

  // Begins steps that write to a tensor of each device, none of which ends. Returns the tensors.
  std::vector<torch::Tensor> begin_steps(const std::string& platform, int steps) {
    fake().platform = platform;
    record::set_runner(make_xla_runner(XlaClient::create(load()), {.limit = 30ms, .most_ahead = 100}));
    std::vector<torch::Tensor> weights;
    for (const torch::Device device : devices_) weights.push_back(torch::ones({4}).to(device));
    fake().events_hang = true;
    for (int step = 0; step < steps; ++step) step_on(weights);
    return weights;
  }
  void step_on(const std::vector<torch::Tensor>& weights) const {
    for (const torch::Tensor& each : weights) each.neg_();
    record::flush_together(devices_);
  }

  std::vector<torch::Device> devices_;
};

TEST_F(XlaRunnerTest, AHundredStepsOfFourDevicesAreQueuedWithoutAWait) {
  const std::vector<torch::Tensor> weights = begin_steps("tpu", 100);
  EXPECT_EQ(fake().count("LoadedExecutable_Execute"), 100U);
  EXPECT_EQ(fake().count("Buffer_Destroy"), 0U) << "which may wait for a launch that has not begun";
}

TEST_F(XlaRunnerTest, OneMoreThanMayBeAheadWaitsForTheFirst) {
  const std::vector<torch::Tensor> weights = begin_steps("tpu", 100);
  EXPECT_THAT(error_of<DeadlineExceeded>([&] { step_on(weights); }), HasSubstr("waited 30 ms for the launch of"));
  EXPECT_EQ(fake().count("LoadedExecutable_Execute"), 100U);
  fake().events_hang = false;
  for (const auto& happen : fake().hanging) happen();
  fake().hanging.clear();
  for (int step = 0; step < 150; ++step) step_on(weights);
  EXPECT_EQ(fake().count("LoadedExecutable_Execute"), 250U);
  EXPECT_GE(fake().count("Buffer_Destroy"), 249U * kDevices);
}

// XLA's plugin for CPUs waits as it destroys them, and has to: its devices share a few threads.
TEST_F(XlaRunnerTest, ProgramsOfSeveralCpusGiveDonatedBuffersBackAtOnce) {
  const std::vector<torch::Tensor> weights = begin_steps("cpu", 10);
  EXPECT_EQ(fake().count("Buffer_Destroy"), 10U * kDevices);
}

}  // namespace
}  // namespace cohort::runner_test
