// Distributed input over several workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::worker_steps_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::with_workers;

using Rows = std::vector<int64_t>;

Dataset numbers(int64_t count, int64_t first = 0) {
  return Dataset::from_tensor_slices(torch::arange(first, first + count).unsqueeze(1));
}

Rows rows_of(const Example& share) {
  EXPECT_EQ(share.x.dim(), 2) << "an empty share keeps the other dimensions";
  const torch::Tensor flat = share.x.flatten();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

struct Step {
  std::vector<Rows> shares;
  int64_t total = 0;
  bool operator==(const Step&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  out << "total " << step.total << ":";
  for (const Rows& share : step.shares) out << " " << ::testing::PrintToString(share);
  return out;
}

std::vector<Step> steps_of(DistributedIterator& iterator) {
  std::vector<Step> steps;
  while (const auto batch = iterator.next()) {
    Step step{.total = batch->global_size()};
    for (const Example& share : *batch) step.shares.push_back(rows_of(share));
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<Step> steps_of(const DistributedDataset& dataset) {
  DistributedIterator iterator = dataset.iterator();
  return steps_of(iterator);
}

TEST(WorkerSteps, DataShardingCutsEachBatchInTheOrderOfTheReplicas) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const DistributedDataset data = strategy.distribute(numbers(10).batch(8));
    EXPECT_EQ(data.cardinality(), 2);
    const std::vector<Step> steps = steps_of(data);
    ASSERT_EQ(steps.size(), 2U);
    if (strategy.worker_rank() == 0) {
      EXPECT_EQ(steps[0], (Step{{{0, 1}, {2, 3}}, 8}));
      EXPECT_EQ(steps[1], (Step{{{8}, {9}}, 2}));
    } else {
      EXPECT_EQ(steps[0], (Step{{{4, 5}, {6, 7}}, 8}));
      EXPECT_EQ(steps[1], (Step{{{}, {}}, 2}));
    }
  });
}

TEST(WorkerSteps, OffGivesEveryWorkerEverythingInExactShares) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const std::vector<Step> steps = steps_of(strategy.distribute(numbers(6).batch(3), {.auto_shard = AutoShard::kOff}));
    ASSERT_EQ(steps.size(), 4U);
    // 3 = 2 + 1, and in turn.
    if (strategy.worker_rank() == 0) {
      EXPECT_THAT(steps, ElementsAre(Step{{{0, 1}}, 3}, Step{{{2}}, 3}, Step{{{3, 4}}, 3}, Step{{{5}}, 3}));
    } else {
      EXPECT_THAT(steps, ElementsAre(Step{{{0}}, 3}, Step{{{1, 2}}, 3}, Step{{{3}}, 3}, Step{{{4, 5}}, 3}));
    }
  });
}

Dataset files(int64_t count) {
  return Dataset::range(count).interleave([](const Example& file) { return numbers(4, file.x.item<int64_t>() * 100); });
}

TEST(WorkerSteps, FilesAreDividedWhereThereAreEnough) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const std::vector<Step> steps = steps_of(strategy.distribute(files(3).batch(4)));
    if (strategy.worker_rank() == 0) {
      EXPECT_THAT(steps,
                  ElementsAre(Step{{{0, 1}}, 4}, Step{{{2, 3}}, 4}, Step{{{200, 201}}, 2}, Step{{{202, 203}}, 2}));
    } else {
      EXPECT_THAT(steps, ElementsAre(Step{{{100, 101}}, 4}, Step{{{102, 103}}, 4}, Step{{{}}, 2}, Step{{{}}, 2}));
    }
    EXPECT_EQ(steps_of(strategy.distribute(files(1).batch(4))).size(), 1U) << "one file: by data";
    expect_error<InvalidArgument>(
        [&] { (void)strategy.distribute(files(1).batch(4), {.auto_shard = AutoShard::kFile}); },
        "cannot shard by files: 2 workers, and 1 files");
    expect_error<InvalidArgument>(
        [&] { (void)strategy.distribute(numbers(4).batch(4), {.auto_shard = AutoShard::kFile}); }, "no files");
  });
}

TEST(WorkerSteps, FewerExamplesThanReplicasAStep) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    int64_t total = 0;
    for (const GlobalBatch& batch : strategy.distribute(files(2).batch(1))) {
      EXPECT_GT(batch.global_size(), 0);
      total += batch.global_size();
    }
    EXPECT_EQ(total, 8);
  });
}

TEST(WorkerSteps, WhoseFunctionGivesMoreGoesOn) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const auto data = strategy.distribute_from_function(
        [](const InputContext& context) { return numbers(context.input_pipeline_id == 0 ? 0 : 3).batch(2); });
    const std::vector<Step> steps = steps_of(data);
    if (strategy.worker_rank() == 0) {
      EXPECT_THAT(steps, ElementsAre(Step{{{}}, 2}, Step{{{}}, 1}));
    } else {
      EXPECT_THAT(steps, ElementsAre(Step{{{0, 1}}, 2}, Step{{{2}}, 1}));
    }
    EXPECT_TRUE(
        steps_of(strategy.distribute_from_function([](const InputContext&) { return numbers(0).batch(2); })).empty());
  });
}

TEST(WorkerSteps, AnInputThatFailsEndsTheStepEverywhere) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const auto data = strategy.distribute(numbers(8).batch(2).map([&](Example batch) {
      if (strategy.worker_rank() == 1 && batch.x[0].item<int64_t>() == 4) throw DataLoss("[test] a torn record");
      return batch;
    }));
    DistributedIterator iterator = data.iterator();
    EXPECT_TRUE(iterator.next());
    EXPECT_TRUE(iterator.next());
    if (strategy.worker_rank() == 1) {
      EXPECT_THAT(error_of<DataLoss>([&] { (void)iterator.next(); }), HasSubstr("torn record"));
    } else {
      EXPECT_THAT(error_of<Unavailable>([&] { (void)iterator.next(); }), HasSubstr("the input of worker 1 has failed"));
    }
  });
}

TEST(WorkerSteps, PositionsAreSavedWithTheStepThatWasTakenAhead) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const auto data = strategy.distribute(numbers(20).shuffle(5, {.seed = 1}).batch(4));
    DistributedIterator iterator = data.iterator();
    (void)iterator.next();
    const std::string position = iterator.save();
    const std::vector<Step> rest = steps_of(iterator);
    ASSERT_EQ(rest.size(), 4U);
    DistributedIterator other = data.iterator();
    (void)other.next();
    (void)other.next();
    other.restore(position);
    EXPECT_EQ(steps_of(other), rest);
    other.restore(position);
    EXPECT_EQ(steps_of(other), rest);
  });
}

TEST(WorkerSteps, FlagsReachAllWorkers) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    DistributedIterator iterator = strategy.distribute(numbers(20).batch(4)).iterator();
    if (strategy.worker_rank() == 1) iterator.raise(4);
    (void)iterator.next();
    EXPECT_EQ(iterator.raised(), 4);
    iterator.raise(strategy.worker_rank() + 1);
    (void)iterator.next();
    EXPECT_EQ(iterator.raised(), 0);
    (void)iterator.next();
    EXPECT_EQ(iterator.raised(), 3);
  });
}

TEST(WorkerSteps, AnIteratorMayBeLeftInTheMiddle) {
  with_workers({.workers = 3}, [](const MultiWorkerMirroredStrategy& strategy) {
    for (int i = 0; i < 5; ++i) {
      DistributedIterator iterator = strategy.distribute(numbers(20).batch(4)).iterator();
      EXPECT_TRUE(iterator.next());
    }
    EXPECT_EQ(steps_of(strategy.distribute(numbers(20).batch(4))).size(), 5U);
  });
}

}  // namespace
}  // namespace cohort::worker_steps_test
