// Buckets: the messages of gradients that leave while backward runs, in the order in which backward brings them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/packs.h"
#include "step/flat_parameters.h"

namespace cohort {

// A part of the flat gradients of a group.
struct BucketRun {
  std::size_t group = 0;
  int64_t begin = 0;  // elements
  int64_t end = 0;
  friend bool operator==(const BucketRun&, const BucketRun&) = default;
};

struct Bucket {
  std::vector<BucketRun> runs;
  std::vector<std::size_t> parameters;  // those that it has elements of, in the order of the flat memory
  std::vector<std::size_t> completed;   // those of which it has the last elements, likewise
};

struct BucketSizes {
  int64_t full = 0;       // a bucket with so many bytes or more takes no further parameter
  int64_t most_last = 0;  // the last bucket has at most so many bytes, or one parameter
};

// Returns buckets of whole parameters. `order` has all parameters as their gradients come. The last bucket is small,
// because nothing is left to be computed while it travels.
std::vector<Bucket> plan_buckets(const FlatParameters& flat, std::span<const std::size_t> order,
                                 const BucketSizes& sizes);

// Returns the packs of each group as buckets, ordered by when the last gradient of each comes.
std::vector<Bucket> buckets_of_packs(const FlatParameters& flat, std::span<const std::size_t> order,
                                     const std::vector<std::vector<Pack>>& packs);

}  // namespace cohort
