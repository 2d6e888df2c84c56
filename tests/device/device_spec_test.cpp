#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cohort/device.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::device_spec_test {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(DeviceSpec, ParsesAndPrints) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"/job:worker/replica:0/task:1/device:GPU:0", "/job:worker/replica:0/task:1/device:GPU:0"},
      {"/device:GPU:3/task:2/job:ps", "/job:ps/task:2/device:GPU:3"},
      {"/GPU:0", "/device:GPU:0"},
      {"gpu:1", "/device:GPU:1"},
      {"/cpu:0", "/device:CPU:0"},
      {"GPU", "/device:GPU:*"},
      {"/device:GPU:*", "/device:GPU:*"},
      {"/device:TPU", "/device:TPU:*"},
      {"/task:4", "/task:4"},
      {"", ""},
      {"/", ""},
  };
  for (const auto& [text, printed] : cases) {
    EXPECT_EQ(DeviceSpec::parse(text).to_string(), printed) << text;
    EXPECT_EQ(DeviceSpec::parse(printed), DeviceSpec::parse(text)) << text;
  }
  EXPECT_EQ(DeviceSpec::parse("/job:worker/task:1/GPU:2").short_form(), "/GPU:2");
}

TEST(DeviceSpec, NamesWhatIsWrong) {
  const auto error = [](const char* text) { return error_of<InvalidArgument>([&] { DeviceSpec::parse(text); }); };
  EXPECT_THAT(error("/gpu:x"), HasSubstr("the index must be a number, not \"x\""));
  EXPECT_THAT(error("/GPU:0/CPU:0"), HasSubstr("names two device types, GPU and CPU"));
  EXPECT_THAT(error("/speed:3"), HasSubstr("unknown attribute \"speed:3\""));
  EXPECT_THAT(error("/device:DISK:0"), HasSubstr("device type \"DISK\" is not known"));
  EXPECT_THAT(error("/task:one"), HasSubstr("the task must be a number"));
  EXPECT_THAT(error("/task:-1"), HasSubstr("the task must be a number"));
  EXPECT_THAT(error("/job:"), HasSubstr("should be job:<value>"));
  EXPECT_THAT(error("/GPU:0:1"), HasSubstr("unknown attribute"));
  EXPECT_THAT(error("//GPU:0"), HasSubstr("unknown attribute \"\""));
}

TEST(DeviceSpec, InnerPartsOverrideOuterOnes) {
  const auto outer = DeviceSpec::parse("/job:worker/task:1/GPU:0");
  EXPECT_EQ(DeviceSpec::parse("/CPU:0").merged_into(outer).to_string(), "/job:worker/task:1/device:CPU:0");
  EXPECT_EQ(DeviceSpec::parse("/task:2").merged_into(outer).to_string(), "/job:worker/task:2/device:GPU:0");
  EXPECT_EQ(DeviceSpec{}.merged_into(outer), outer);
}

TEST(DeviceSpec, CanonicalFillsTheDefaults) {
  EXPECT_EQ(DeviceSpec::parse("gpu").canonical().to_string(), "/job:localhost/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(DeviceSpec::parse("/job:ps/task:3/GPU:1").host().to_string(), "/job:ps/task:3/device:CPU:0");
}

}  // namespace
}  // namespace cohort::device_spec_test
