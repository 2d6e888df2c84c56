#include "device/watched_operations.h"

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

}  // namespace
}  // namespace cohort::watched_operations_test
