#include "base/number_in.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace cohort::number_in_test {
namespace {

using testing::expect_error;

TEST(NumberIn, IsTheWholeTextOrAnError) {
  EXPECT_EQ(number_in<int64_t>("-9223372036854775808", "a"), INT64_MIN);
  EXPECT_EQ(number_in<double>("0.25", "a"), 0.25);
  for (const char* text : {"", " 1", "1 ", "1x", "x", "9223372036854775808", "0x10", "+1"}) {
    expect_error<DataLoss>([&] { (void)number_in<int64_t>(text, "[test] the step of rank 1"); },
                           "[test] the step of rank 1 is \"");
  }
  expect_error<DataLoss>([] { (void)number_in<int>(std::string(100, '9'), "[test] it"); },
                         "\"" + std::string(40, '9') + "\"");
}

}  // namespace
}  // namespace cohort::number_in_test
