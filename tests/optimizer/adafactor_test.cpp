// Adafactor's means of rows and columns, where LibTorch has nothing to compare them with.
#include <gtest/gtest.h>

#include "cohort/more_update_rules.h"
#include "tests/optimizer/rule_runs.h"

namespace cohort::adafactor_test {
namespace {

using testing_support::make_slots;
using testing_support::numbers;
using testing_support::update_by_segments;

// A parameter that does not lie row by row, as a channels-last convolution's: the means are still by row and column.
TEST(Adafactor, TakesAnyLayout) {
  const Optimizer optimizer = Adafactor({.learning_rate = 0.01});
  torch::Tensor plain = numbers(1, {4, 3, 5}, torch::kDouble);
  torch::Tensor turned = plain.permute({0, 2, 1}).contiguous().permute({0, 2, 1});
  std::vector<torch::Tensor> plain_slots = make_slots(optimizer.rule(), plain);
  std::vector<torch::Tensor> turned_slots = make_slots(optimizer.rule(), turned);
  for (int64_t step = 1; step <= 5; ++step) {
    const torch::Tensor gradient = numbers(100 * step, {4, 3, 5}, torch::kDouble);
    const StepContext context{.learning_rate = 0.01, .step = step};
    update_by_segments(optimizer.rule(), plain, gradient.clone(), plain_slots, {}, context, {});
    const torch::Tensor same = gradient.permute({0, 2, 1}).contiguous().permute({0, 2, 1});
    update_by_segments(optimizer.rule(), turned, same, turned_slots, {}, context, {});
  }
  EXPECT_TRUE(torch::allclose(plain, turned, 0, 1e-12));
}

// A dead unit and an input that is always zero: the product of their means is no number of float32 other than zero.
TEST(Adafactor, ElementsWithoutGradientsStayAsTheyAre) {
  const Optimizer optimizer = Adafactor({.learning_rate = 0.01});
  for (const bool by_tensors : {false, true}) {
    torch::Tensor parameter = numbers(1, {3, 4}, torch::kFloat);
    const torch::Tensor before = parameter.clone();
    std::vector<torch::Tensor> slots = make_slots(optimizer.rule(), parameter);
    for (int64_t step = 1; step <= 3; ++step) {
      const torch::Tensor gradient = numbers(100 * step, {3, 4}, torch::kFloat);
      gradient.select(0, 1).zero_();
      gradient.select(1, 2).zero_();
      const StepContext context{.learning_rate = 0.01, .step = step};
      by_tensors ? optimizer.rule().update(parameter, gradient, slots, {}, context)
                 : update_by_segments(optimizer.rule(), parameter, gradient, slots, {}, context, {});
    }
    EXPECT_TRUE(parameter.isfinite().all().item<bool>()) << parameter;
    EXPECT_TRUE(torch::equal(parameter[1], before[1]));
    EXPECT_FALSE(torch::equal(parameter[0], before[0]));
  }
}

}  // namespace
}  // namespace cohort::adafactor_test
