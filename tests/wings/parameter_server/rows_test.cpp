#include "wings/parameter_server/rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace cohort::rows_test {
namespace {

TEST(Rows, UniqueOnesAreSortedAndFoundAgain) {
  const int64_t far = int64_t{1} << 40;
  for (const std::vector<int64_t>& list :
       {std::vector<int64_t>{}, {5}, {7, 7, 7}, {3, 1, 3, 0, 2, 1}, {far, 5, far + 1, -3, 5}}) {
    const torch::Tensor indices = torch::tensor(list, torch::kLong);
    const auto [unique, inverse] = unique_rows(indices);
    const auto [wanted, wanted_inverse] = at::_unique(indices, /*sorted=*/true, /*return_inverse=*/true);
    EXPECT_TRUE(torch::equal(unique, wanted)) << unique;
    EXPECT_TRUE(torch::equal(unique.index_select(0, inverse), indices)) << inverse;
  }
  const torch::Tensor many = torch::randint(0, 5'000'000, {20'000}, torch::kLong);
  const auto [unique, inverse] = unique_rows(many);
  EXPECT_TRUE(torch::equal(unique, std::get<0>(at::_unique(many, true, false))));
  EXPECT_TRUE(torch::equal(unique.index_select(0, inverse), many));
}

TEST(Rows, AreGathered) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kLong}) {
    const torch::Tensor table = torch::arange(20 * 6).view({20, 2, 3}).to(dtype);
    const torch::Tensor indices = torch::tensor({19, 0, 7, 7, 3, 4, 5, 6, 8, 9, 10, 1}, torch::kLong);
    EXPECT_TRUE(torch::equal(gather_rows(table, indices), table.index_select(0, indices)));
  }
  EXPECT_EQ(gather_rows(torch::ones({3, 2}), torch::empty({0}, torch::kLong)).sizes(), (std::vector<int64_t>{0, 2}));
}

TEST(Rows, GradientsOfTheSameRowAreAddedUp) {
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kBFloat16}) {
    const torch::Tensor indices = torch::tensor({2, 0, 2, 2, 4}, torch::kLong);
    const torch::Tensor weight = torch::randn({5, 3}).to(dtype);
    torch::Tensor ours = torch::randn({5, 3}).to(dtype).requires_grad_(true);
    torch::Tensor theirs = ours.detach().clone().requires_grad_(true);
    (look_up_rows(ours, indices) * weight).sum().backward();
    (theirs.index_select(0, indices) * weight).sum().backward();
    EXPECT_TRUE(torch::equal(ours.grad(), theirs.grad())) << ours.grad() << theirs.grad();
  }
  // A gradient that is laid out otherwise.
  torch::Tensor table = torch::randn({3, 4}).requires_grad_(true);
  look_up_rows(table, torch::tensor({1, 1}, torch::kLong)).t().contiguous().sum().backward();
  EXPECT_EQ(table.grad().sum().item<double>(), 8.0);
}

}  // namespace
}  // namespace cohort::rows_test
