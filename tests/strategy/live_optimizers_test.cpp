#include "strategy/live_optimizers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cohort::live_optimizers_test {
namespace {

using ::testing::ElementsAre;

struct Counted final : LiveOptimizer {
  int dropped = 0;
  void drop_step() override { ++dropped; }
};

TEST(LiveOptimizers, DropTheStepsOfThoseThatAreAlive) {
  LiveOptimizers optimizers;
  Counted first;
  Counted second;
  EXPECT_EQ(optimizers.add(first), 1);
  EXPECT_EQ(optimizers.add(second), 2);
  EXPECT_THAT(optimizers.alive(), ElementsAre(&first, &second));
  optimizers.remove(first);
  optimizers.drop_steps();
  EXPECT_EQ(first.dropped, 0);
  EXPECT_EQ(second.dropped, 1);
  EXPECT_EQ(optimizers.add(first), 3) << "numbers are given once";
}

TEST(LiveOptimizers, AreSeveralFromTheNextRunOn) {
  LiveOptimizers optimizers;
  Counted first;
  Counted second;
  optimizers.add(first);
  optimizers.begin_run();
  optimizers.add(second);
  EXPECT_FALSE(optimizers.several());
  optimizers.begin_run();
  EXPECT_TRUE(optimizers.several());
}

}  // namespace
}  // namespace cohort::live_optimizers_test
