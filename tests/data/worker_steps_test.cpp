// Distributed input over several workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/data/datasets.h"
#include "cohort/data/image.h"
#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::worker_steps_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_error;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using testing::with_workers;
using testing::write_file;

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

TEST(WorkerSteps, DataShardingGivesWorkersThePiecesOfEachBatchInTurn) {
  with_workers({.workers = 2, .replicas = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const DistributedDataset data = strategy.distribute(numbers(10).batch(8));
    EXPECT_EQ(data.cardinality(), 2);
    const std::vector<Step> steps = steps_of(data);
    ASSERT_EQ(steps.size(), 2U);
    if (strategy.worker_rank() == 0) {
      EXPECT_EQ(steps[0], (Step{{{0, 1}, {4, 5}}, 8}));
      EXPECT_EQ(steps[1], (Step{{{8}, {}}, 2}));
    } else {
      EXPECT_EQ(steps[0], (Step{{{2, 3}, {6, 7}}, 8}));
      EXPECT_EQ(steps[1], (Step{{{9}, {}}, 2}));
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

// Everything that a worker takes from one pass of its own input.
Rows all_rows(const DistributedDataset& dataset) {
  Rows rows;
  for (const Step& step : steps_of(dataset)) {
    for (const Rows& share : step.shares) rows.insert(rows.end(), share.begin(), share.end());
  }
  return rows;
}

// The transformations that begin their input anew took the whole of it.
TEST(WorkerSteps, FilesStayDividedBelowRepeatAndCache) {
  const TemporaryFolder folder;
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Rows own = strategy.worker_rank() == 0 ? Rows{0, 1, 2, 3} : Rows{100, 101, 102, 103};
    Rows twice = own;
    twice.insert(twice.end(), own.begin(), own.end());
    const auto batches = [](const Dataset& rows) { return rows.batch(2); };
    EXPECT_EQ(all_rows(strategy.distribute(batches(files(2).repeat(2)))), twice);
    EXPECT_EQ(all_rows(strategy.distribute(batches(files(2).cache()).repeat(2))), twice);
    for (int run = 0; run < 2; ++run) {
      EXPECT_EQ(all_rows(strategy.distribute(batches(files(2).cache(folder / "kept").repeat(2)))), twice);
    }
  });
  EXPECT_TRUE(std::filesystem::exists(folder / "kept-0-of-2") && std::filesystem::exists(folder / "kept-1-of-2"));
}

TEST(WorkerSteps, EachWorkerReadsItsOwnImages) {
  const TemporaryFolder folder;
  for (const std::string name : {"a", "b"}) {
    std::filesystem::create_directories(folder / name);
    for (int i = 0; i < 3; ++i) {
      const auto image = torch::full({1, 1, 1}, (name == "a" ? 0 : 100) + i, torch::kByte);
      write_file(folder / (name + "/" + std::to_string(i) + ".png"), encode_png(image));
    }
  }
  // The last of worker 1's files; worker 0 never opens it.
  write_file(folder / "b/2.png", "no picture");
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Dataset images = datasets::image_folder(folder.path(), {.shuffle = false}).train.map([](Example example) {
      example.x = example.x.select(0, 0).flatten().to(torch::kLong);
      return example;
    });
    const DistributedDataset data = strategy.distribute(images.batch(2), {.prefetch_steps = 0});
    DistributedIterator iterator = data.iterator();
    const bool chief = strategy.worker_rank() == 0;
    EXPECT_EQ(rows_of((*iterator.next())[0]), chief ? Rows{0} : Rows{1});
    EXPECT_EQ(rows_of((*iterator.next())[0]), chief ? Rows{2} : Rows{100});
    if (chief) {
      expect_error<Unavailable>([&] { (void)iterator.next(); }, "worker 1 has failed");
    } else {
      expect_error<DataLoss>([&] { (void)iterator.next(); }, "b/2.png: neither a JPEG nor a PNG");
    }
  });
}

// A part with less than a batch would be dropped as a whole.
TEST(WorkerSteps, FilesAreNotDividedIntoPartsWithoutABatch) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "a");
  for (int i = 0; i < 6; ++i) {
    write_file(folder / ("a/" + std::to_string(i) + ".png"), encode_png(torch::full({1, 1, 1}, i, torch::kByte)));
  }
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const Dataset images = datasets::image_folder(folder.path(), {.shuffle = false}).train.map([](Example example) {
      example.x = example.x.select(0, 0).flatten().to(torch::kLong);
      return example;
    });
    const auto batches = [&](int64_t size) {
      return all_rows(strategy.distribute(images.batch(size, {.drop_remainder = true})));
    };
    const bool chief = strategy.worker_rank() == 0;
    EXPECT_EQ(batches(4), (chief ? Rows{0, 1} : Rows{2, 3})) << "by data";
    EXPECT_EQ(batches(3), (chief ? Rows{0, 2, 4} : Rows{1, 3, 5})) << "by files";
  });
}

TEST(WorkerSteps, LoopsOfAllWorkersAreTheSamePass) {
  with_workers({.workers = 2}, [](const MultiWorkerMirroredStrategy& strategy) {
    const Dataset data = numbers(16).shuffle(16, {.seed = 4}).batch(16);
    if (strategy.worker_rank() == 1) (void)*data.begin();  // a look at the data that the other does not take
    const DistributedDataset distributed = strategy.distribute(data);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const Rows whole = rows_of(*data.iterator({.epoch = epoch}).next());
      const auto half = whole.begin() + 8 * strategy.worker_rank();
      EXPECT_EQ(all_rows(distributed), Rows(half, half + 8)) << "each element of pass " << epoch << " once";
    }
    // A pass that one worker begins alone is no longer the others'.
    if (strategy.worker_rank() == 1) (void)distributed.iterator();
    expect_error<FailedPrecondition>([&] { (void)all_rows(distributed); }, "pass 3 over a distributed input");
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
