#include "step/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cohort::scaling_test {
namespace {

TEST(LossScalerTest, WithoutOptionsTheScaleIsOneForEver) {
  LossScaler scaler(std::nullopt);
  scaler.note(false);
  scaler.restore(8.0, 3);
  EXPECT_EQ(scaler.scale(), 1.0);
  EXPECT_EQ(scaler.good_steps(), 0);
}

TEST(LossScalerTest, HalvesAfterAStepThatWasLeftOutAndDoublesAfterGoodOnes) {
  LossScaler scaler(LossScale{.initial_scale = 8.0, .growth_steps = 2});
  scaler.note(true);
  EXPECT_EQ(scaler.scale(), 8.0);
  scaler.note(true);
  EXPECT_EQ(scaler.scale(), 16.0);
  scaler.note(true);
  scaler.note(false);
  EXPECT_EQ(scaler.scale(), 8.0);
  EXPECT_EQ(scaler.good_steps(), 0) << "they have to be in a row";
}

TEST(LossScalerTest, FallsBelowOneAndStaysANumberWhoseInverseIsOne) {
  LossScaler scaler(LossScale{.initial_scale = 1.5});
  scaler.note(false);
  EXPECT_EQ(scaler.scale(), 0.75);
  for (int step = 0; step < 2000; ++step) scaler.note(false);
  EXPECT_GT(static_cast<float>(scaler.scale()), 0.0F);
  EXPECT_TRUE(std::isfinite(static_cast<float>(1.0 / scaler.scale())));
}

TEST(LossScalerTest, AFixedScaleStaysTheProgramsOwn) {
  LossScaler scaler(LossScale{.initial_scale = 4.0, .dynamic = false});
  scaler.note(false);
  scaler.restore(64.0, 5);
  EXPECT_EQ(scaler.scale(), 4.0);
}

TEST(LossScalerTest, GoesOnFromACheckpoint) {
  LossScaler scaler(LossScale{.growth_steps = 3});
  scaler.restore(2.0, 2);
  scaler.note(true);
  EXPECT_EQ(scaler.scale(), 4.0);
}

TEST(ScalingTest, ClippingBringsALargeNormDownAndLeavesASmallOne) {
  EXPECT_NEAR(clip_factor(16.0, 2.0), 0.5, 1e-6);
  EXPECT_EQ(clip_factor(1.0, 2.0), 1.0);
  EXPECT_EQ(clip_factor(1e30, 0.0), 1.0) << "off";
  EXPECT_TRUE(std::isnan(clip_factor(std::nan(""), 2.0))) << "it is to be seen";
}

TEST(ScalingTest, TheNormIsThatOfTheScaledSums) {
  StepContext context{.grad_scale = 0.25};
  EXPECT_TRUE(scale_by_norm(64.0, {.global_clipnorm = 1.0}, context));  // a norm of 8, of 2 when scaled
  EXPECT_NEAR(context.grad_scale, 0.125, 1e-6);
}

TEST(ScalingTest, SumsThatAreNotFiniteAreLeftOutOnlyWithALossScale) {
  const double infinite = std::numeric_limits<double>::infinity();
  StepContext context{.grad_scale = 0.5};
  EXPECT_FALSE(scale_by_norm(infinite, {.loss_scale = LossScale{}}, context));
  EXPECT_EQ(context.grad_scale, 0.5);
  EXPECT_TRUE(scale_by_norm(infinite, {}, context));
}

TEST(ScalingTest, OnlyClippingAndALossScaleNeedTheNorm) {
  EXPECT_FALSE(needs_norm({.clipvalue = 1.0}));
  EXPECT_TRUE(needs_norm({.global_clipnorm = 1.0}));
  EXPECT_TRUE(needs_norm({.loss_scale = LossScale{}}));
}

}  // namespace
}  // namespace cohort::scaling_test
