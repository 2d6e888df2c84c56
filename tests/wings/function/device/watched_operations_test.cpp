#include "wings/function/device/watched_operations.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort::watched_operations_test {
namespace {

TEST(WatchedOperations, CountsWorkThatReturnsNothing) {
  const torch::Tensor x = torch::ones({1});
  const auto operations = std::make_shared<WatchedOperations>(torch::kCPU);
  const OperationWatch watch(operations);
  EXPECT_EQ(operations->take_count(), 0);
  at::_assert_async(x);
  EXPECT_GT(operations->take_count(), 0);
  EXPECT_EQ(operations->take_count(), 0);
}

// A sum makes its result without an operation, and views it with one.
TEST(WatchedOperations, ResultsThatAreGoneAgainWereNotFound) {
  const torch::Tensor x = torch::ones({3, 2});
  torch::Tensor weight = torch::ones({2}).requires_grad_();
  const auto operations = std::make_shared<WatchedOperations>(torch::kCPU);
  torch::Tensor result;
  {
    const OperationWatch watch(operations);
    result = x.sum() + (x * weight).sum({0}).square().mean();
    result.backward();
    result = result.detach();
  }
  const FoundTensors found = operations->take_found();
  EXPECT_TRUE(found.are_as_they_were());
  weight.set_data(torch::zeros({2}));
  EXPECT_FALSE(found.are_as_they_were());
}

}  // namespace
}  // namespace cohort::watched_operations_test
