#include "device/random_draws.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "device/host_random.h"

namespace cohort::random_draws_test {
namespace {

TEST(RandomWatch, NotesEveryGeneratorOnceWithItsStateBefore) {
  torch::manual_seed(3);
  at::Generator own = make_host_generator(5);
  const auto draw = [&] {
    return torch::cat({torch::dropout(torch::ones({8}), 0.5, true), torch::rand({3}), torch::randn({3}, own),
                       torch::empty({4}).uniform_(0.0, 1.0, own), torch::randperm(5).to(torch::kFloat)});
  };
  torch::Tensor first;
  std::vector<RandomDraw> outer_draws, draws;
  {
    const std::vector<at::Generator> both = {own, host_generator()};
    const RandomWatch outer(both);
    const RandomWatch watch(both);
    (void)(torch::ones({2}) * 3.0);
    EXPECT_TRUE(watch.draws().empty());
    first = draw();
    draws = watch.draws();
    outer_draws = outer.draws();
  }
  const torch::Tensor after = torch::rand({2}), own_after = torch::rand({2}, own);
  ASSERT_EQ(draws.size(), 2U);
  ASSERT_EQ(outer_draws.size(), 2U);
  EXPECT_EQ(draws[0].generator, host_generator());
  EXPECT_EQ(draws[0].operation, "aten::bernoulli_");
  EXPECT_EQ(draws[1].generator, own);
  {
    const DrawnAgain again(draws);
    EXPECT_TRUE(draw().equal(first));
  }
  EXPECT_EQ(draws.size(), 2U) << "nothing is noted any more";
  torch::manual_seed(3);
  own.set_current_seed(5);
  (void)draw();
  EXPECT_TRUE(torch::rand({2}).equal(after)) << "what came after the first time is what comes after it";
  EXPECT_TRUE(torch::rand({2}, own).equal(own_after));
}

}  // namespace
}  // namespace cohort::random_draws_test
