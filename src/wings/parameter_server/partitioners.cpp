#include "cohort/cluster/partitioners.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort {

namespace {

void require_positive(const char* partitioner, const char* option, int64_t value) {
  if (value > 0) return;
  fail<InvalidArgument>("[parameter server] ", partitioner, ": ", option, " must be positive, got ", value);
}

int64_t round_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

int64_t bytes_of(at::IntArrayRef shape, torch::ScalarType dtype) {
  return c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(dtype));
}

// Throws for a scalar, as TensorFlow's partitioners do.
void require_rows(const char* partitioner, at::IntArrayRef shape) {
  if (!shape.empty()) return;
  fail<InvalidArgument>("[parameter server] ", partitioner,
                        ": a scalar has no rows to cut, wanted a shape of 1 or more ", "dimensions");
}

// Returns the partitions of each axis. A variable without rows is one shard.
std::vector<int64_t> cut_rows(at::IntArrayRef shape, int64_t shards) {
  std::vector<int64_t> counts(shape.size(), 1);
  counts[0] = std::clamp<int64_t>(shards, 1, std::max<int64_t>(shape[0], 1));
  return counts;
}

}  // namespace

Partitioner FixedShardsPartitioner(int64_t num_shards) {
  return [=](at::IntArrayRef shape, torch::ScalarType /*dtype*/) {
    require_positive("FixedShardsPartitioner", "num_shards", num_shards);
    require_rows("FixedShardsPartitioner", shape);
    return cut_rows(shape, num_shards);
  };
}

Partitioner MinSizePartitioner(const MinSizePartitionerOptions& options) {
  require_positive("MinSizePartitioner", "min_shard_bytes", options.min_shard_bytes);
  require_positive("MinSizePartitioner", "max_shards", options.max_shards);
  return [=](at::IntArrayRef shape, torch::ScalarType dtype) {
    require_rows("MinSizePartitioner", shape);
    return cut_rows(shape, std::min(options.max_shards, round_up(bytes_of(shape, dtype), options.min_shard_bytes)));
  };
}

Partitioner MaxSizePartitioner(const MaxSizePartitionerOptions& options) {
  require_positive("MaxSizePartitioner", "max_shard_bytes", options.max_shard_bytes);
  if (options.max_shards < 0) {
    fail<InvalidArgument>("[parameter server] MaxSizePartitioner: max_shards must not be negative, got ",
                          options.max_shards);
  }
  return [=](at::IntArrayRef shape, torch::ScalarType dtype) {
    require_rows("MaxSizePartitioner", shape);
    const int64_t row_bytes = std::max<int64_t>(bytes_of(shape.slice(1), dtype), 1);
    const int64_t rows = std::max<int64_t>(options.max_shard_bytes / row_bytes, 1);
    const int64_t shards = round_up(shape[0], rows);
    return cut_rows(shape, options.max_shards > 0 ? std::min(options.max_shards, shards) : shards);
  };
}

std::vector<int64_t> shard_rows(at::IntArrayRef shape, torch::ScalarType dtype, const Partitioner& partitioner) {
  if (shape.empty()) return {1};
  const int64_t rows = shape[0];
  if (!partitioner || rows == 0) return {rows};
  const std::vector<int64_t> counts = partitioner(shape, dtype);
  const auto wrong = [&](const char* wanted) {
    fail<InvalidArgument>("[parameter server] the partitioner says ", at::IntArrayRef(counts),
                          " for a variable of shape ", shape, "; ", wanted);
  };
  if (counts.size() != shape.size()) wrong("wanted one count a dimension");
  if (std::any_of(counts.begin() + 1, counts.end(), [](int64_t count) { return count != 1; })) {
    wrong("only the first dimension can be cut");
  }
  const int64_t shards = counts[0];
  if (shards < 1 || shards > rows) wrong("the first must be between 1 and the number of rows");
  std::vector<int64_t> sizes(static_cast<std::size_t>(shards), rows / shards);
  for (int64_t i = 0; i < rows % shards; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

}  // namespace cohort
