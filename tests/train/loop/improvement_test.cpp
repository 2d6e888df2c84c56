#include "train/loop/improvement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cohort::improvement_test {
namespace {

TEST(Best, TakesWhatIsBetterByMoreThanTheLeastChange) {
  Best best(/*up=*/false, /*min_delta=*/0.5);
  EXPECT_FALSE(best.take(std::nan("")));
  EXPECT_TRUE(best.take(3.0));
  EXPECT_FALSE(best.take(2.5));
  EXPECT_FALSE(best.take(std::nan("")));
  EXPECT_TRUE(best.take(2.4));
  EXPECT_EQ(best.number(), 2.4);
  Best accuracy(/*up=*/true, 0.0, /*number=*/0.7);
  EXPECT_FALSE(accuracy.take(0.7));
  EXPECT_TRUE(accuracy.take(0.71));
  EXPECT_TRUE(accuracy.better(0.6, std::nullopt));
}

TEST(Best, OfAnActionIsFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  Best loss(Comparison::kLower);
  EXPECT_FALSE(loss.take(infinity));
  EXPECT_TRUE(loss.take(1e300));
  Best accuracy(Comparison::kHigher);
  EXPECT_FALSE(accuracy.take(-infinity));
  EXPECT_TRUE(accuracy.take(0.0));
}

}  // namespace
}  // namespace cohort::improvement_test
