#include "cohort/cluster/partitioners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::partitioners_test {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;

std::vector<int64_t> floats(const Partitioner& partitioner, const std::vector<int64_t>& shape) {
  return partitioner(shape, torch::kFloat);
}

// The counts are those in the examples and tests of tf.distribute.experimental.partitioners.
TEST(Partitioners, CountAsTensorFlowDoes) {
  EXPECT_THAT(floats(FixedShardsPartitioner(2), {10, 3}), ElementsAre(2, 1));
  EXPECT_THAT(floats(FixedShardsPartitioner(2), {1, 3}), ElementsAre(1, 1));
  EXPECT_THAT(floats(MinSizePartitioner({.min_shard_bytes = 4, .max_shards = 2}), {6, 1}), ElementsAre(2, 1));
  EXPECT_THAT(floats(MinSizePartitioner({.min_shard_bytes = 4, .max_shards = 10}), {6, 1}), ElementsAre(6, 1));
  EXPECT_THAT(floats(MaxSizePartitioner({.max_shard_bytes = 4}), {6, 1}), ElementsAre(6, 1));
  EXPECT_THAT(floats(MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 2}), {6, 1}), ElementsAre(2, 1));
  EXPECT_THAT(floats(MaxSizePartitioner({.max_shard_bytes = 1024}), {6, 1}), ElementsAre(1, 1));
}

TEST(Partitioners, MinSizeCountsTheShardThatIsBegun) {
  const Partitioner partitioner = MinSizePartitioner({.min_shard_bytes = 100, .max_shards = 50});
  EXPECT_THAT(floats(partitioner, {25}), ElementsAre(1)) << "100 bytes";
  EXPECT_THAT(floats(partitioner, {26}), ElementsAre(2)) << "104 bytes";
  EXPECT_THAT(partitioner({26}, torch::kDouble), ElementsAre(3)) << "208 bytes";
  EXPECT_THAT(floats(partitioner, {3, 1000}), ElementsAre(3, 1)) << "no more than rows";
  EXPECT_THAT(floats(MinSizePartitioner({}), {1 << 20, 64}), ElementsAre(1, 1)) << "never cuts by default";
}

TEST(Partitioners, MaxSizeNeverCutsARow) {
  const Partitioner partitioner = MaxSizePartitioner({.max_shard_bytes = 100});
  EXPECT_THAT(floats(partitioner, {25}), ElementsAre(1));
  EXPECT_THAT(floats(partitioner, {26}), ElementsAre(2));
  EXPECT_THAT(floats(partitioner, {10, 10}), ElementsAre(5, 1)) << "two rows of 40 bytes a shard";
  EXPECT_THAT(floats(partitioner, {7, 1000}), ElementsAre(7, 1)) << "a row is larger";
  EXPECT_THAT(floats(partitioner, {7, 0}), ElementsAre(1, 1));
}

TEST(Partitioners, TheFirstShardsHaveOneRowMore) {
  EXPECT_THAT(shard_rows({10}, torch::kFloat, FixedShardsPartitioner(4)), ElementsAre(3, 3, 2, 2));
  EXPECT_THAT(shard_rows({13, 8}, torch::kFloat, FixedShardsPartitioner(5)), ElementsAre(3, 3, 3, 2, 2));
  EXPECT_THAT(shard_rows({4, 2}, torch::kFloat, FixedShardsPartitioner(9)), ElementsAre(1, 1, 1, 1));
}

TEST(Partitioners, WhatHasNoRowsIsWhole) {
  EXPECT_THAT(shard_rows({}, torch::kFloat, FixedShardsPartitioner(4)), ElementsAre(1));
  EXPECT_THAT(shard_rows({0, 3}, torch::kFloat, FixedShardsPartitioner(4)), ElementsAre(0));
  EXPECT_THAT(shard_rows({5, 3}, torch::kFloat, nullptr), ElementsAre(5));
}

// TensorFlow's raise IndexError or ValueError for every one of these.
TEST(Partitioners, AScalarHasNothingToCut) {
  const auto refused = [](const Partitioner& partitioner, const std::string& name) {
    expect_error<InvalidArgument>([&] { (void)floats(partitioner, {}); },
                                  "[parameter server] " + name + ": a scalar has no rows to cut");
  };
  refused(FixedShardsPartitioner(2), "FixedShardsPartitioner");
  refused(MinSizePartitioner({}), "MinSizePartitioner");
  refused(MinSizePartitioner({.max_shards = 4}), "MinSizePartitioner");
  refused(MinSizePartitioner({.min_shard_bytes = 1000, .max_shards = 6}), "MinSizePartitioner");
  refused(MaxSizePartitioner({.max_shard_bytes = 1000}), "MaxSizePartitioner");
  refused(MaxSizePartitioner({.max_shard_bytes = 65536, .max_shards = 3}), "MaxSizePartitioner");
  refused(MaxSizePartitioner({.max_shard_bytes = 16}), "MaxSizePartitioner");
  for (const Partitioner& each :
       {FixedShardsPartitioner(2), MinSizePartitioner({}), MaxSizePartitioner({.max_shard_bytes = 16})}) {
    EXPECT_THAT(floats(each, {0, 3}), ElementsAre(1, 1)) << "no rows";
  }
}

TEST(Partitioners, RefuseWrongOptions) {
  expect_error<InvalidArgument>(
      [] {
        (void)FixedShardsPartitioner(0)({4, 2}, torch::kFloat);
      },
      "[parameter server] FixedShardsPartitioner: num_shards must be positive, got 0");
  expect_error<InvalidArgument>([] { MinSizePartitioner({.min_shard_bytes = 0}); }, "min_shard_bytes must be positive");
  expect_error<InvalidArgument>([] { MinSizePartitioner({.max_shards = -1}); }, "max_shards must be positive, got -1");
  expect_error<InvalidArgument>([] { MaxSizePartitioner({}); }, "max_shard_bytes must be positive, got 0");
  expect_error<InvalidArgument>([] { MaxSizePartitioner({.max_shard_bytes = 1, .max_shards = -2}); },
                                "max_shards must not be negative, got -2");
}

TEST(Partitioners, AnAnswerThatCannotBeIsRefused) {
  const auto rows = [](const std::vector<int64_t>& counts) {
    shard_rows({4, 2}, torch::kFloat, [&](at::IntArrayRef, torch::ScalarType) { return counts; });
  };
  expect_error<InvalidArgument>(
      [&] { rows({2}); }, "the partitioner says [2] for a variable of shape [4, 2]; wanted one count a dimension");
  expect_error<InvalidArgument>([&] { rows({2, 2}); }, "only the first dimension can be cut");
  expect_error<InvalidArgument>([&] { rows({0, 1}); }, "between 1 and the number of rows");
  expect_error<InvalidArgument>([&] { rows({5, 1}); }, "between 1 and the number of rows");
}

}  // namespace
}  // namespace cohort::partitioners_test
