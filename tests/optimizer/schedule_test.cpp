#include "cohort/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cohort/error.h"
#include "cohort/update_rules.h"

namespace cohort::schedule_test {
namespace {

constexpr double kPi = 3.14159265358979323846;

TEST(Schedule, ConstantByDefault) {
  const Schedule rate = 0.25;
  EXPECT_TRUE(rate.is_constant());
  EXPECT_EQ(rate.name(), "constant");
  EXPECT_EQ(rate(0), 0.25);
  EXPECT_EQ(rate(1'000'000), 0.25);
}

TEST(Schedule, TakesAnyFunction) {
  const Schedule rate("halving", [](int64_t step) { return std::pow(0.5, static_cast<double>(step)); });
  EXPECT_FALSE(rate.is_constant());
  EXPECT_EQ(rate.name(), "halving");
  EXPECT_EQ(rate(3), 0.125);
  EXPECT_THROW(Schedule("empty", nullptr), InvalidArgument);
}

double halved(int64_t step) {
  return std::pow(0.5, static_cast<double>(step));
}

TEST(Schedule, IsMadeOfALambdaWhereARateIsWanted) {
  const Optimizer adam = Adam({.learning_rate = [](int64_t step) { return 0.5 / static_cast<double>(1 + step); }});
  EXPECT_EQ(adam.learning_rate().name(), "function");
  EXPECT_FALSE(adam.learning_rate().is_constant());
  EXPECT_EQ(adam.learning_rate()(4), 0.1);
  EXPECT_EQ(SGD({.learning_rate = halved}).learning_rate()(3), 0.125);
  EXPECT_EQ(LinearWarmup({.warmup_steps = 2, .after = [](auto) { return 3.0; }})(2), 3.0);
  // Numbers, and no options at all, are what they were.
  EXPECT_TRUE(SGD({.learning_rate = 1}).learning_rate().is_constant());
  EXPECT_EQ(Adam({}).learning_rate()(0), Adam().learning_rate()(0));
  EXPECT_THROW(Schedule(std::function<double(int64_t)>()), InvalidArgument);
}

TEST(PiecewiseConstantDecay, HoldsAValueUpToAndIncludingItsBoundary) {
  const Schedule rate = PiecewiseConstantDecay({.boundaries = {100, 200}, .values = {1.0, 0.5, 0.1}});
  EXPECT_EQ(rate.name(), "PiecewiseConstantDecay");
  EXPECT_EQ(rate(0), 1.0);
  EXPECT_EQ(rate(100), 1.0);
  EXPECT_EQ(rate(101), 0.5);
  EXPECT_EQ(rate(200), 0.5);
  EXPECT_EQ(rate(201), 0.1);
  EXPECT_EQ(rate(1'000'000), 0.1);
}

TEST(PiecewiseConstantDecay, RefusesWhatDoesNotFit) {
  EXPECT_THROW(PiecewiseConstantDecay({.boundaries = {1, 2}, .values = {1.0, 0.5}}), InvalidArgument);
  EXPECT_THROW(PiecewiseConstantDecay({.boundaries = {2, 1}, .values = {1.0, 0.5, 0.1}}), InvalidArgument);
  EXPECT_THROW(PiecewiseConstantDecay({.boundaries = {2, 2}, .values = {1.0, 0.5, 0.1}}), InvalidArgument);
  EXPECT_THROW(PiecewiseConstantDecay({.boundaries = {2}, .values = {1.0, -0.5}}), InvalidArgument);
}

TEST(ExponentialDecay, IsSmoothOrAStaircase) {
  const ExponentialDecayOptions options{.initial_learning_rate = 0.8, .decay_steps = 10, .decay_rate = 0.5};
  const Schedule smooth = ExponentialDecay(options);
  EXPECT_DOUBLE_EQ(smooth(0), 0.8);
  EXPECT_DOUBLE_EQ(smooth(5), 0.8 * std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(smooth(10), 0.4);
  EXPECT_DOUBLE_EQ(smooth(25), 0.8 * std::pow(0.5, 2.5));

  ExponentialDecayOptions stairs = options;
  stairs.staircase = true;
  const Schedule steps = ExponentialDecay(stairs);
  EXPECT_DOUBLE_EQ(steps(9), 0.8);
  EXPECT_DOUBLE_EQ(steps(10), 0.4);
  EXPECT_DOUBLE_EQ(steps(25), 0.2);
}

TEST(CosineDecay, EndsAtAlphaAndStaysThere) {
  const Schedule rate = CosineDecay({.initial_learning_rate = 2.0, .decay_steps = 100, .alpha = 0.1});
  EXPECT_DOUBLE_EQ(rate(0), 2.0);
  EXPECT_DOUBLE_EQ(rate(50), 2.0 * (0.9 * 0.5 + 0.1));
  EXPECT_DOUBLE_EQ(rate(30), 2.0 * (0.9 * 0.5 * (1.0 + std::cos(kPi * 0.3)) + 0.1));
  EXPECT_DOUBLE_EQ(rate(100), 0.2);
  EXPECT_DOUBLE_EQ(rate(5000), 0.2);
}

TEST(PolynomialDecay, EndsAtTheEndAndStaysThere) {
  const Schedule line = PolynomialDecay({.initial_learning_rate = 1.0, .decay_steps = 100, .end_learning_rate = 0.5});
  EXPECT_DOUBLE_EQ(line(0), 1.0);
  EXPECT_DOUBLE_EQ(line(40), 0.8);
  EXPECT_DOUBLE_EQ(line(100), 0.5);
  EXPECT_DOUBLE_EQ(line(250), 0.5);
  const Schedule root =
      PolynomialDecay({.initial_learning_rate = 1.0, .decay_steps = 100, .end_learning_rate = 0.0, .power = 0.5});
  EXPECT_DOUBLE_EQ(root(75), 0.5);
}

// Keras: decay_steps becomes decay_steps * ceil(step / decay_steps), at step 0 decay_steps.
TEST(PolynomialDecay, CyclesStretched) {
  const Schedule rate = PolynomialDecay(
      {.initial_learning_rate = 1.0, .decay_steps = 100, .end_learning_rate = 0.0, .power = 1.0, .cycle = true});
  EXPECT_DOUBLE_EQ(rate(0), 1.0);
  EXPECT_DOUBLE_EQ(rate(100), 0.0);
  EXPECT_DOUBLE_EQ(rate(101), 1.0 - 101.0 / 200.0);
  EXPECT_DOUBLE_EQ(rate(150), 0.25);
  EXPECT_DOUBLE_EQ(rate(200), 0.0);
  EXPECT_DOUBLE_EQ(rate(225), 0.25);
}

TEST(LinearWarmup, LeadsIntoAnySchedule) {
  const Schedule rate =
      LinearWarmup({.warmup_steps = 10,
                    .warmup_learning_rate = 0.2,
                    .after = ExponentialDecay({.initial_learning_rate = 1.0, .decay_steps = 5, .decay_rate = 0.5})});
  EXPECT_DOUBLE_EQ(rate(0), 0.2);
  EXPECT_DOUBLE_EQ(rate(5), 0.6);
  EXPECT_DOUBLE_EQ(rate(10), 1.0);
  EXPECT_DOUBLE_EQ(rate(15), 0.5);

  const Schedule to_constant = LinearWarmup({.warmup_steps = 4, .after = 2.0});
  EXPECT_DOUBLE_EQ(to_constant(1), 0.5);
  EXPECT_DOUBLE_EQ(to_constant(4), 2.0);
  EXPECT_DOUBLE_EQ(LinearWarmup({.warmup_steps = 0, .after = 2.0})(0), 2.0);
}

TEST(PolynomialWarmup, RisesToTheRateAtItsEnd) {
  const Schedule rate = PolynomialWarmup({.warmup_steps = 4, .power = 2.0, .after = 0.8});
  EXPECT_DOUBLE_EQ(rate(0), 0.05);
  EXPECT_DOUBLE_EQ(rate(2), 0.2);
  EXPECT_DOUBLE_EQ(rate(4), 0.8);
}

TEST(CosineDecayRestarts, BeginsAnewAtEachPeriod) {
  const Schedule rate = CosineDecayRestarts({.initial_learning_rate = 1.0, .first_decay_steps = 10, .m_mul = 0.5});
  for (const auto& [step, wanted] : {std::pair{0, 1.0}, {10, 0.5}, {30, 0.25}, {70, 0.125}}) {
    EXPECT_DOUBLE_EQ(rate(step), wanted) << step;
    if (step == 0) continue;
    EXPECT_LT(rate(step - 1), 0.05 * rate(step)) << step;
  }
}

TEST(StepCosineDecay, KeepsItsLastRate) {
  const Schedule rate = StepCosineDecay({.boundaries = {0, 10, 30}, .values = {1.0, 0.5, 0.1}});
  EXPECT_DOUBLE_EQ(rate(0), 1.0);
  EXPECT_DOUBLE_EQ(rate(5), 0.75);
  EXPECT_DOUBLE_EQ(rate(20), 0.3);
  EXPECT_DOUBLE_EQ(rate(30), 0.1);
  EXPECT_DOUBLE_EQ(rate(1000), 0.1);
}

TEST(WithOffset, MovesASchedule) {
  const Schedule rate =
      WithOffset(ExponentialDecay({.initial_learning_rate = 1.0, .decay_steps = 1, .decay_rate = 0.5}), 3);
  EXPECT_DOUBLE_EQ(rate(3), 1.0);
  EXPECT_DOUBLE_EQ(rate(5), 0.25);
  EXPECT_DOUBLE_EQ(rate(1), 4.0);
}

TEST(Schedules, RefuseWrongNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(ExponentialDecay({.decay_steps = 0}), InvalidArgument);
  EXPECT_THROW(ExponentialDecay({.initial_learning_rate = -0.1}), InvalidArgument);
  EXPECT_THROW(ExponentialDecay({.decay_rate = -1.0}), InvalidArgument);
  EXPECT_THROW(CosineDecay({.decay_steps = -5}), InvalidArgument);
  EXPECT_THROW(CosineDecay({.initial_learning_rate = nan}), InvalidArgument);
  EXPECT_THROW(CosineDecay({.alpha = -0.5}), InvalidArgument);
  EXPECT_THROW(PolynomialDecay({.decay_steps = 0}), InvalidArgument);
  EXPECT_THROW(PolynomialDecay({.end_learning_rate = -1.0}), InvalidArgument);
  EXPECT_THROW(LinearWarmup({.warmup_steps = -1, .after = 1.0}), InvalidArgument);
  EXPECT_THROW(LinearWarmup({.warmup_learning_rate = -1.0, .after = 1.0}), InvalidArgument);
  EXPECT_THROW(LinearWarmup({.after = -1.0}), InvalidArgument);
  EXPECT_THROW(PolynomialWarmup({.power = -1.0, .after = 1.0}), InvalidArgument);
  EXPECT_THROW(CosineDecay({.warmup_steps = 5}), InvalidArgument);
  EXPECT_THROW(CosineDecayRestarts({.t_mul = 0.5}), InvalidArgument);
  EXPECT_THROW(InverseTimeDecay({.decay_rate = -0.5}), InvalidArgument);
  EXPECT_THROW(PowerDecay({.power = nan}), InvalidArgument);
  EXPECT_THROW(StepCosineDecay({.boundaries = {1, 2}, .values = {0.1}}), InvalidArgument);
  EXPECT_THROW(StepCosineDecay({.boundaries = {2, 2}, .values = {0.1, 0.2}}), InvalidArgument);
}

TEST(Schedules, SayWhatCameAndWhatWasWanted) {
  try {
    CosineDecay({.decay_steps = 0});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "[schedule] CosineDecay: decay_steps is 0, wanted 1 or more");
  }
}

}  // namespace
}  // namespace cohort::schedule_test
