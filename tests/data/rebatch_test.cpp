// The rebatch over many global batches, workers and replicas: equal to unbatch-then-batch.
#include "data/rebatch.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "data/split.h"

namespace cohort::rebatch_test {
namespace {

using Sizes = std::vector<int64_t>;

// Batches of the given sizes with consecutive numbers in x and y.
Rebatch::Input batches(Sizes sizes) {
  return [sizes = std::move(sizes), at = std::size_t{0}, first = int64_t{0}](Example& batch) mutable {
    if (at == sizes.size()) return false;
    const torch::Tensor numbers = torch::arange(first, first + sizes[at], torch::kLong);
    batch = {.x = numbers.view({-1, 1}).expand({-1, 3}).contiguous(), .y = numbers.to(torch::kFloat)};
    first += sizes[at++];
    return true;
  };
}

// The sizes of each step's shares, after checking what is in them.
std::vector<Sizes> steps_of(const Sizes& incoming, const Sizes& sizes, std::size_t step) {
  Rebatch rebatch(batches(incoming), sizes, step);
  std::vector<Sizes> steps;
  std::vector<Example> shares;
  int64_t next = 0;
  while (rebatch.next(shares)) {
    EXPECT_EQ(shares.size(), step);
    steps.emplace_back();
    for (const Example& share : shares) {
      steps.back().push_back(share.size());
      EXPECT_EQ(share.x.sizes(), (at::IntArrayRef{share.size(), 3}));
      EXPECT_EQ(share.y.scalar_type(), torch::kFloat);
      EXPECT_TRUE(torch::equal(share.y, torch::arange(next, next + share.size(), torch::kFloat)));
      EXPECT_TRUE(torch::equal(share.x.select(1, 2), share.y.to(torch::kLong)));
      next += share.size();
    }
  }
  EXPECT_FALSE(rebatch.next(shares)) << "the end is the end";
  EXPECT_EQ(next, std::accumulate(incoming.begin(), incoming.end(), int64_t{0})) << "elements were lost";
  return steps;
}

// Returns what unbatch-then-batch gives: sizes in turn, until the elements are used up.
std::vector<Sizes> expected(int64_t elements, const Sizes& sizes, std::size_t step) {
  std::vector<Sizes> steps;
  for (std::size_t turn = 0; elements > 0;) {
    steps.emplace_back();
    for (std::size_t i = 0; i < step; ++i, turn = (turn + 1) % sizes.size()) {
      steps.back().push_back(std::min(elements, sizes[turn]));
      elements -= steps.back().back();
    }
  }
  return steps;
}

TEST(Rebatch, EqualsUnbatchThenBatchForEveryWorker) {
  const std::vector<Sizes> streams{{4, 4, 2}, {1, 1, 1}, {7, 3, 7, 1}, {20}, {3, 0, 5, 0}};
  for (const Sizes& stream : streams) {
    const int64_t elements = std::accumulate(stream.begin(), stream.end(), int64_t{0});
    for (int64_t global = 1; global <= 9; ++global) {
      for (int64_t workers = 1; workers <= 3; ++workers) {
        for (int64_t local = 1; local <= 3; ++local) {
          for (int64_t worker = 0; worker < workers; ++worker) {
            const Sizes sizes = sub_batch_sizes(global, workers, local, worker);
            const auto step = static_cast<std::size_t>(local);
            EXPECT_EQ(steps_of(stream, sizes, step), expected(elements, sizes, step))
                << "G " << global << ", W " << workers << ", r " << local << ", worker " << worker;
          }
        }
      }
    }
  }
}

TEST(Rebatch, AStepWithoutAShareIsNotTheEnd) {
  // One example a step over two workers: worker 1 waits first.
  EXPECT_EQ(sub_batch_sizes(1, 2, 1, 1), (Sizes{0, 1}));
  EXPECT_EQ(steps_of({1, 1}, {0, 1}, 1), (std::vector<Sizes>{{0}, {1}, {0}, {1}}));
}

TEST(Rebatch, AnEmptyInputHasNoSteps) {
  EXPECT_TRUE(steps_of({}, {2, 2}, 2).empty());
  EXPECT_TRUE(steps_of({0, 0}, {2, 2}, 2).empty());
}

TEST(Rebatch, AWholeBatchPassesUntouched) {
  const torch::Tensor data = torch::rand({4, 3});
  bool given = false;
  Rebatch rebatch(
      [&](Example& batch) {
        batch.x = data;
        return !std::exchange(given, true);
      },
      {4}, 1);
  std::vector<Example> shares;
  ASSERT_TRUE(rebatch.next(shares));
  EXPECT_TRUE(shares[0].x.is_same(data));
}

TEST(Rebatch, ContinuesFromASavedPosition) {
  const Sizes incoming{5, 5, 5, 2};
  const Sizes sizes = sub_batch_sizes(5, 1, 3, 0);
  for (int point = 0; point <= 4; ++point) {
    auto stream = batches(incoming);
    int taken = 0;
    Rebatch counted(
        [&](Example& batch) {
          ++taken;
          return stream(batch);
        },
        sizes, 3);
    std::vector<Example> shares;
    for (int i = 0; i < point; ++i) counted.next(shares);
    std::vector<torch::Tensor> tensors;
    const nlohmann::json tree = counted.save(tensors);
    auto again = batches(incoming);
    Example skipped;
    for (int i = 0; i < taken; ++i) again(skipped);
    Rebatch restored(again, sizes, 3);
    restored.restore(tree, tensors);
    std::vector<Example> other;
    while (counted.next(shares)) {
      ASSERT_TRUE(restored.next(other)) << "from step " << point;
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(torch::equal(shares[i].x, other[i].x));
    }
    EXPECT_FALSE(restored.next(other));
  }
}

TEST(Split, LegacyPiecesCoverTheBatch) {
  for (int64_t size = 0; size < 20; ++size) {
    for (int64_t pieces = 1; pieces < 7; ++pieces) {
      const Sizes borders = legacy_borders(size, pieces);
      ASSERT_EQ(borders.size(), static_cast<std::size_t>(pieces + 1));
      EXPECT_EQ(borders.front(), 0);
      EXPECT_EQ(borders.back(), size);
      for (std::size_t i = 1; i < borders.size(); ++i) {
        const int64_t piece = borders[i] - borders[i - 1];
        EXPECT_GE(piece, 0);
        EXPECT_LE(piece, (size + pieces - 1) / pieces);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::rebatch_test
