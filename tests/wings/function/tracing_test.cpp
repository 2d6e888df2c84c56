// The table of signatures and the count of retracings, with TensorFlow's numbers.
#include "wings/function/tracing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort {
namespace tracing_test {
namespace {

Signature rows(int64_t count) {
  Signature signature;
  signature.arguments = {type_of(TensorSpec{.shape = {{count, 3}}}, torch::kCPU)};
  return signature;
}

TEST(SignatureTableTest, FindsTheNarrowestThatAccepts) {
  SignatureTable table;
  EXPECT_FALSE(table.find(rows(1)));
  Signature any;
  any.arguments = {type_of(TensorSpec{}, torch::kCPU)};
  EXPECT_EQ(table.add(any), 0U);
  EXPECT_EQ(table.find(rows(1)), 0U);
  EXPECT_EQ(table.add(rows(kAnySize)), 1U);
  EXPECT_EQ(table.find(rows(1)), 1U);
  EXPECT_EQ(table.add(rows(1)), 2U);
  EXPECT_EQ(table.find(rows(1)), 2U);
  EXPECT_EQ(table.find(rows(2)), 1U);
}

TEST(SignatureTableTest, RelaxesWithAllThatAreKnown) {
  SignatureTable table;
  EXPECT_EQ(to_string(table.relaxed_with_known(rows(1))), "f32[1, 3] cpu");
  table.add(rows(1));
  EXPECT_EQ(to_string(table.relaxed_with_known(rows(2))), "f32[?, 3] cpu");
  Signature two;
  two.arguments = {rows(1).arguments[0], rows(1).arguments[0]};
  EXPECT_EQ(table.relaxed_with_known(two), two);
}

TEST(RetracingDetectorTest, WarnsAtTheFifthOfTheLastTenAndTwiceAtMost) {
  RetracingDetector detector;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(detector.called_with_tracing("step", "rows"), "");
  const std::string warning = detector.called_with_tracing("step", "rows");
  EXPECT_EQ(warning.rfind("[function] 5 out of the last 5 calls to step triggered retracing.", 0), 0U) << warning;
  EXPECT_NE(warning.find("The last time: rows"), std::string::npos) << warning;
  EXPECT_NE(detector.called_with_tracing("step", "rows"), "");
  EXPECT_EQ(detector.called_with_tracing("step", "rows"), "");
}

TEST(RetracingDetectorTest, ForgetsCallsOfLongAgo) {
  RetracingDetector detector;
  detector.called_without_tracing();  // after get_concrete_function() the first call need not trace
  // Every fourth call traces: at most 4 of the last ones do.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(detector.called_with_tracing("step", ""), "") << i;
    for (int j = 0; j < 3; ++j) detector.called_without_tracing();
  }
  // Every second call: 5 of the last 10.
  std::string warning;
  for (int i = 0; i < 5; ++i) {
    warning += detector.called_with_tracing("step", "");
    detector.called_without_tracing();
  }
  EXPECT_NE(warning.find("5 out of the last"), std::string::npos) << warning;
}

}  // namespace
}  // namespace tracing_test
}  // namespace cohort
