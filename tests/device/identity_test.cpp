#include "device/identity.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace cohort::identity_test {
namespace {

TEST(Identity, HandlesAreOneTensorAndViewsAreOneMemory) {
  const torch::Tensor matrix = torch::rand({3, 4});
  const torch::Tensor& handle = matrix;
  EXPECT_EQ(tensor_id(matrix), tensor_id(torch::Tensor(handle)));
  EXPECT_NE(tensor_id(matrix), tensor_id(matrix.view({-1})));
  EXPECT_TRUE(same_memory(matrix, matrix.view({-1})));
  EXPECT_TRUE(same_memory(matrix, matrix.detach()));
  EXPECT_FALSE(same_memory(matrix, matrix[1]));
  EXPECT_FALSE(same_memory(matrix, matrix.clone()));
}

TEST(Identity, ATensorWithoutStorageIsItsOwnMemory) {
  const torch::Tensor one = torch::rand({3, 4}).to_sparse();
  const torch::Tensor other = torch::rand({3, 4}).to_sparse();
  EXPECT_TRUE(same_memory(one, one));
  EXPECT_FALSE(same_memory(one, other));
  EXPECT_FALSE(memory_range(one));
}

TEST(Identity, ARangeReachesFromTheFirstElementToTheLast) {
  const torch::Tensor matrix = torch::rand({3, 4});
  const torch::Tensor column = matrix.select(1, 1);
  EXPECT_EQ(elements_spanned(column), 9);
  const auto whole = memory_range(matrix);
  const auto part = memory_range(column);
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(whole->end - whole->begin, 12 * 4);
  EXPECT_EQ(part->begin - whole->begin, 4);
  EXPECT_EQ(part->end - part->begin, 9 * 4);
  EXPECT_FALSE(memory_range(torch::Tensor()));
  EXPECT_FALSE(memory_range(torch::empty({0, 4})));
}

}  // namespace
}  // namespace cohort::identity_test
