#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/device.h"
#include "cohort/error.h"

namespace cohort::placement_test {
namespace {

TEST(Placement, ScopesNest) {
  cpu_devices(3);
  EXPECT_EQ(current_logical_device().name(), "/CPU:0");
  {
    const DeviceScope outer("/CPU:1");
    EXPECT_EQ(current_logical_device().name(), "/CPU:1");
    {
      const DeviceScope inner("/CPU:2");
      EXPECT_EQ(current_logical_device().name(), "/CPU:2");
      const DeviceScope cleared("");
      EXPECT_EQ(current_logical_device().name(), "/CPU:0");
    }
    EXPECT_EQ(current_logical_device().name(), "/CPU:1");
  }
  EXPECT_EQ(current_logical_device().name(), "/CPU:0");
  EXPECT_EQ(torch::zeros({1}, placement_options()).device(), torch::Device(torch::kCPU));
}

TEST(Placement, AMissingGpuBecomesTheCpuOnlyWithSoftPlacement) {
  EXPECT_TRUE(get_soft_device_placement());
  {
    const DeviceScope soft("/GPU:99");
    EXPECT_EQ(current_torch_device(), torch::Device(torch::kCPU));
  }
  set_soft_device_placement(false);
  EXPECT_THROW((void)DeviceScope("/GPU:99"), InvalidArgument);
  set_soft_device_placement(true);
  EXPECT_THROW((void)DeviceScope("/CPU:99"), InvalidArgument);
}

TEST(Placement, PlacesAndLogs) {
  set_log_device_placement(true);
  ::testing::internal::CaptureStderr();
  torch::nn::Linear linear(2, 1);
  place(*linear, "linear");
  EXPECT_EQ(place(torch::ones({2}), "input").device(), torch::Device(torch::kCPU));
  const std::string logged = ::testing::internal::GetCapturedStderr();
  set_log_device_placement(false);
  EXPECT_NE(logged.find("linear placed on /job:localhost/replica:0/task:0/device:CPU:0"), std::string::npos) << logged;
  EXPECT_NE(logged.find("input placed on"), std::string::npos) << logged;
  EXPECT_NE(logged.find("[info]"), std::string::npos) << logged;
  EXPECT_EQ(logged.find("critical"), std::string::npos) << logged;
}

}  // namespace
}  // namespace cohort::placement_test
