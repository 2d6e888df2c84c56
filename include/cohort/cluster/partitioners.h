// Partitioners: functions that say into how many shards a variable is cut that lives on parameter servers. Only the
// first dimension is partitioned.
//
// The arithmetic is TensorFlow's (tf.distribute.experimental.partitioners), so that a variable has the same shards.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace cohort {

// Counts of parts, one a dimension of a variable of this shape and dtype; all but the first have to be 1. Anything that
// can be called so is a partitioner; it is called once for each variable that has rows, by one thread. Those below
// throw InvalidArgument for a scalar's shape.
using Partitioner = std::function<std::vector<int64_t>(at::IntArrayRef shape, torch::ScalarType dtype)>;

// Cuts into `num_shards`, but not more than rows. Its call throws InvalidArgument unless `num_shards` is positive.
Partitioner FixedShardsPartitioner(int64_t num_shards);

struct MinSizePartitionerOptions {
  int64_t min_shard_bytes = 256 << 10;  // a variable has as many shards as it has of these, the last one begun included
  int64_t max_shards = 1;               // but not more; at the default nothing is ever cut
};
// InvalidArgument unless all are positive.
Partitioner MinSizePartitioner(const MinSizePartitionerOptions& options);

struct MaxSizePartitionerOptions {
  int64_t max_shard_bytes = 0;  // a variable has as few shards as keep each within this; a row is never cut
  int64_t max_shards = 0;       // but not more, even if they are larger then; 0: any number
};
// InvalidArgument unless max_shard_bytes is positive and max_shards is not negative.
Partitioner MaxSizePartitioner(const MaxSizePartitionerOptions& options);

// Returns the rows of each shard, one after the other, in the "div" layout: the first `rows % shards` have one more
// than the others. A scalar, a variable without rows and an empty partitioner give one shard. InvalidArgument: the
// partitioner's answer does not fit the shape, cuts another dimension than the first, or is not between 1 and the
// number of rows.
std::vector<int64_t> shard_rows(at::IntArrayRef shape, torch::ScalarType dtype, const Partitioner& partitioner);

}  // namespace cohort
