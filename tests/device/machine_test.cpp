#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cpu_threads.h"
#include "cohort/device.h"
#include "cohort/error.h"
#include "device/backend.h"
#include "tests/support/errors.h"

namespace cohort::machine_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

class Machine : public ::testing::Test {
 protected:
  void SetUp() override { reset_devices(); }
  void TearDown() override { reset_devices(); }
  const PhysicalDevice cpu_{.type = "CPU", .index = 0};
};

TEST_F(Machine, HasACpu) {
  ASSERT_EQ(list_physical_devices("CPU").size(), 1U);
  EXPECT_EQ(list_physical_devices("CPU")[0].name(), "/physical_device:CPU:0");
  EXPECT_EQ(list_logical_devices("CPU").size(), 1U);
  EXPECT_EQ(find_logical_device("cpu:0").torch_device, torch::Device(torch::kCPU));
  EXPECT_GE(hardware_cores(), 1);
}

TEST_F(Machine, SplitsTheCpuBeforeItIsUsed) {
  set_logical_devices(cpu_, 3);
  EXPECT_EQ(list_logical_devices("CPU").size(), 3U);
  EXPECT_EQ(find_logical_device("/CPU:2").name(), "/CPU:2");
  EXPECT_THAT(error_of<FailedPrecondition>([&] { set_logical_devices(cpu_, 2); }), HasSubstr("already in use"));
  EXPECT_THROW(set_visible_devices({}), FailedPrecondition);
}

TEST_F(Machine, CpuDevicesSplitFurtherAtAnyTime) {
  EXPECT_EQ(cpu_devices(2), (std::vector<std::string>{"/CPU:0", "/CPU:1"}));
  EXPECT_EQ(cpu_devices(4).size(), 4U);
  EXPECT_EQ(cpu_devices(1), (std::vector<std::string>{"/CPU:0"}));
  EXPECT_EQ(list_logical_devices("CPU").size(), 4U);
  EXPECT_THROW(cpu_devices(0), InvalidArgument);
}

TEST_F(Machine, WrongConfigurationsAreNamed) {
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                set_logical_devices(cpu_, {{.memory_limit_mb = 10}, {}});
              }),
              HasSubstr("the CPU takes no memory limit"));
  EXPECT_THROW(set_logical_devices(cpu_, 0), InvalidArgument);
  EXPECT_THROW(set_logical_devices({.type = "GPU", .index = 99}, 2), NotFound);
  EXPECT_THROW(set_visible_devices({{.type = "GPU", .index = 99}}), NotFound);
  EXPECT_THROW(set_visible_devices({cpu_}, "GPU"), InvalidArgument);
  EXPECT_THAT(error_of<NotFound>([] { find_logical_device("/GPU:99"); }), HasSubstr("there are /CPU:0"));
}

TEST_F(Machine, HiddenDevicesAreNotListed) {
  set_visible_devices({}, "CPU");
  EXPECT_TRUE(get_visible_devices("CPU").empty());
  EXPECT_TRUE(list_logical_devices("CPU").empty());
}

}  // namespace
}  // namespace cohort::machine_test
