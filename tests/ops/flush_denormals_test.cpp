#include "ops/flush_denormals.h"

#include <gtest/gtest.h>

#include <limits>

namespace cohort::flush_denormals_test {
namespace {

float half(float value) {
  volatile float operand = value;  // computed when it runs, not by the compiler
  return operand * 0.5F;
}

TEST(FlushDenormalsTest, HoldsForItsLifetimeOnly) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  EXPECT_GT(half(kSmallest), 0.0F);
  {
    const FlushDenormals flush;
    { const FlushDenormals again; }
#if defined(__SSE2__)
    EXPECT_EQ(half(kSmallest), 0.0F);
    EXPECT_EQ(half(std::numeric_limits<float>::denorm_min() * 8), 0.0F);
#endif
    EXPECT_GT(half(kSmallest * 2), 0.0F);
  }
  EXPECT_GT(half(kSmallest), 0.0F);
}

}  // namespace
}  // namespace cohort::flush_denormals_test
