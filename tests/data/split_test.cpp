#include "data/split.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "data/rebatch.h"

namespace cohort::split_test {
namespace {

using Sizes = std::vector<int64_t>;

TEST(Split, TheReferencesExamples) {
  EXPECT_EQ(sub_batch_sizes(7, 2, 2, 0), (Sizes{2, 2, 2, 1}));
  EXPECT_EQ(sub_batch_sizes(7, 2, 2, 1), (Sizes{2, 1, 2, 2}));
  EXPECT_EQ(sub_batch_sizes(3, 1, 2, 0), (Sizes{2, 1}));
  EXPECT_EQ(legacy_borders(4, 3), (Sizes{0, 2, 4, 4}));
}

TEST(Split, EveryStepConsumesTheGlobalBatch) {
  for (int64_t global = 1; global < 30; ++global) {
    for (int64_t workers = 1; workers <= 4; ++workers) {
      for (int64_t local = 1; local <= 3; ++local) {
        std::vector<Sizes> all;
        for (int64_t w = 0; w < workers; ++w) all.push_back(sub_batch_sizes(global, workers, local, w));
        for (const Sizes& sizes : all) {
          EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), global);
          const auto [low, high] = std::minmax_element(sizes.begin(), sizes.end());
          EXPECT_LE(*high - *low, 1);
        }
        for (int64_t step = 0; step < workers; ++step) {
          int64_t total = 0;
          for (const Sizes& sizes : all) {
            for (int64_t i = 0; i < local; ++i) total += sizes[static_cast<std::size_t>(step * local + i)];
          }
          EXPECT_EQ(total, global);
        }
      }
    }
  }
}

// The sizes of the shares that `incoming` batches are cut into, and what is in them.
std::vector<Sizes> shares_of(const Sizes& incoming, int64_t global, int64_t replicas) {
  std::size_t at = 0;
  int64_t first = 0;
  Rebatch rebatch(
      [&](Example& batch) {
        if (at == incoming.size()) return false;
        batch = {.x = torch::arange(first, first + incoming[at], torch::kLong)};
        first += incoming[at++];
        return true;
      },
      sub_batch_sizes(global, 1, replicas, 0), static_cast<std::size_t>(replicas));
  std::vector<Sizes> steps;
  std::vector<Example> shares;
  int64_t expected = 0;
  while (rebatch.next(shares)) {
    steps.emplace_back();
    for (const Example& share : shares) {
      steps.back().push_back(share.size());
      EXPECT_TRUE(torch::equal(share.x, torch::arange(expected, expected + share.size(), torch::kLong)));
      expected += share.size();
    }
  }
  EXPECT_EQ(expected, first) << "elements were lost";
  return steps;
}

TEST(Rebatch, AShortLastBatchFillsReplica0First) {
  EXPECT_EQ(shares_of({4, 4, 2}, 4, 2), (std::vector<Sizes>{{2, 2}, {2, 2}, {2, 0}}));
}

TEST(Rebatch, GoesOnOverTheBordersOfIncomingBatches) {
  EXPECT_EQ(shares_of({4, 3, 4, 1}, 4, 2), (std::vector<Sizes>{{2, 2}, {2, 2}, {2, 2}}));
  EXPECT_EQ(shares_of({5, 5}, 5, 3), (std::vector<Sizes>{{2, 2, 1}, {2, 2, 1}}));
}

TEST(Rebatch, LosesNothingWhateverTheSizes) {
  for (int64_t global = 1; global < 9; ++global) {
    for (int64_t replicas = 1; replicas <= 4; ++replicas) shares_of({3, 1, 7, 2, 5}, global, replicas);
  }
}

TEST(Rebatch, AShareInsideOneBatchIsAView) {
  const torch::Tensor data = torch::arange(6);
  bool given = false;
  Rebatch rebatch(
      [&](Example& batch) {
        if (given) return false;
        given = true;
        batch = {.x = data};
        return true;
      },
      {3, 3}, 2);
  std::vector<Example> shares;
  ASSERT_TRUE(rebatch.next(shares));
  EXPECT_TRUE(shares[0].x.is_alias_of(data));
  EXPECT_TRUE(shares[1].x.is_alias_of(data));
}

}  // namespace
}  // namespace cohort::split_test
