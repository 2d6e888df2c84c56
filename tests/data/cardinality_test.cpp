// The sizes of datasets and of distributed ones against what iterating over them gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "data/node.h"
#include "data/split.h"
#include "data/step_source.h"
#include "tests/support/errors.h"
#include "tests/support/workers.h"

namespace cohort::cardinality_test {
namespace {

using ::testing::HasSubstr;

int64_t count(const Dataset& dataset) {
  int64_t elements = 0;
  for (auto iterator = dataset.iterator(); iterator.next();) ++elements;
  return elements;
}

int64_t count(const DistributedDataset& dataset) {
  int64_t steps = 0;
  for (auto iterator = dataset.iterator(); iterator.next();) ++steps;
  return steps;
}

// Numbers that workers divide as if each was a file.
Dataset files(int64_t number) {
  return Dataset(make_files(Dataset::range(number).node()));
}

// The batches that pipelines make of a source, several short ones among them.
std::vector<std::pair<std::string, Dataset>> pipelines(const Dataset& source) {
  const auto same = [](Example e) { return e; };
  return {{"batch", source.batch(4)},
          {"full batches", source.batch(4, {.drop_remainder = true})},
          {"map and prefetch", source.batch(4).map(same).prefetch(2)},
          {"repeat before", source.repeat(2).batch(4)},
          {"repeat after", source.batch(4).repeat(3)},
          {"full batches repeated", source.batch(4, {.drop_remainder = true}).repeat(2)},
          {"shuffled batches", source.batch(4).shuffle(3, {.seed = 1})},
          {"take", source.batch(4).take(2)},
          {"take more", source.batch(4).take(100)},
          {"skip", source.batch(4).skip(1)},
          {"skip all", source.batch(4).skip(100)},
          {"every second", source.batch(4).shard(2, 0)},
          {"every second but the first", source.batch(4).shard(2, 1)},
          {"take of full batches repeated", source.batch(4, {.drop_remainder = true}).repeat(2).take(3)},
          {"two after each other", source.batch(4).concatenate(source.take(5).batch(4))},
          {"full ones and others", source.take(4).batch(4).concatenate(source.batch(4)).take(3)},
          {"side by side", source.batch(4).zip(source.batch(4))},
          {"cache", source.batch(4).cache().repeat(2)},
          {"one of each", source.batch(1)}};
}

TEST(CardinalityTest, OneWorkersStepsAreThoseThatItMakes) {
  for (const int64_t rows : {0, 1, 4, 10, 13, 16}) {
    for (const auto& [name, data] : pipelines(files(rows))) {
      SCOPED_TRACE(c10::str(name, " of ", rows));
      EXPECT_EQ(data.cardinality(), count(data));
      for (const int replicas : {1, 2, 3}) {
        const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
        for (const AutoShard shard : {AutoShard::kAuto, AutoShard::kFile, AutoShard::kData, AutoShard::kOff}) {
          const DistributedDataset steps = strategy.distribute(data, {.prefetch_steps = 0, .auto_shard = shard});
          EXPECT_EQ(steps.cardinality(), count(steps)) << replicas << " replicas, policy " << static_cast<int>(shard);
          EXPECT_EQ(steps.size(), steps.cardinality());
        }
        const auto same = [made = data](const InputContext&) { return made; };
        const DistributedDataset own = strategy.distribute_from_function(same, {.prefetch_steps = 0});
        EXPECT_EQ(own.cardinality(), count(own)) << replicas << " replicas, a function";
      }
    }
  }
}

// The steps in which some worker has an example, counted with the sources that the workers have.
int64_t count(const Dataset& data, int64_t workers, int64_t replicas, AutoShard shard) {
  std::vector<std::unique_ptr<StepSource>> sources;
  for (int64_t w = 0; w < workers; ++w) {
    sources.push_back(make_split_source(data, {.epoch = 0}, {.workers = workers, .worker = w, .replicas = replicas},
                                        shard, /*whole=*/false));
  }
  std::vector<bool> ended(sources.size());
  int64_t steps = 0;
  while (true) {
    int64_t total = 0;
    for (std::size_t w = 0; w < sources.size(); ++w) {
      std::vector<Example> shares;
      ended[w] = ended[w] || !sources[w]->next(shares);
      if (ended[w]) continue;
      for (const Example& share : shares) total += share.size();
    }
    if (std::find(ended.begin(), ended.end(), false) == ended.end()) return steps;
    steps += total > 0 ? 1 : 0;
  }
}

TEST(CardinalityTest, SeveralWorkersStepsAreThoseThatTheyMake) {
  int known = 0;
  for (const int64_t rows : {0, 1, 4, 10, 13, 29}) {
    for (const auto& [name, data] : pipelines(files(rows))) {
      for (const int64_t workers : {2, 3}) {
        for (const int64_t replicas : {1, 2, 3}) {
          for (const AutoShard shard : {AutoShard::kFile, AutoShard::kData, AutoShard::kOff}) {
            const InputGroup group{.workers = workers, .replicas = replicas, .ends_alone = false};
            const int64_t steps = steps_of_split(data, group, shard, false);
            if (steps == kUnknownCardinality) continue;
            ++known;
            EXPECT_EQ(steps, count(data, workers, replicas, shard))
                << name << " of " << rows << ", " << workers << " workers of " << replicas << ", policy "
                << static_cast<int>(shard);
          }
        }
      }
    }
  }
  EXPECT_EQ(known, 6 * 19 * 2 * 3 * 3) << "some are not known";
}

TEST(CardinalityTest, WorkersWithPartsOfVeryDifferentSizesAreCountedAtOnce) {
  // One worker is done after 2 steps; the other takes 4, 2 workers' shares, a step.
  EXPECT_EQ(steps_of_parts(8, 1, {8, 4'000'000'000}), 1'000'000'000);
  // Each takes one of the other's turns at a global batch of 1: a cycle of 2 steps uses one example.
  EXPECT_EQ(steps_of_parts(1, 1, {1'000'000'000'000, 0}), 1'000'000'000'000);
  EXPECT_EQ(steps_of_parts(1, 1, {5, 5}), 10);
  EXPECT_EQ(steps_of_parts(3, 2, {0, 0}), 0);
}

TEST(CardinalityTest, RealWorkersAgree) {
  for (const AutoShard shard : {AutoShard::kAuto, AutoShard::kData, AutoShard::kOff}) {
    testing::with_workers({.workers = 2, .replicas = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
      const DistributedDataset steps = strategy.distribute(files(21).batch(5), {.auto_shard = shard});
      EXPECT_EQ(steps.size(), count(steps)) << "policy " << static_cast<int>(shard);
    });
  }
}

TEST(CardinalityTest, SizesGoUpToTheLargestNumber) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const auto first = [](const Dataset& data) { return data.iterator({.epoch = 1}).next()->x; };
  const Dataset ten = Dataset::range(10);
  EXPECT_EQ(ten.batch(kMost).cardinality(), 1);
  EXPECT_EQ(first(ten.batch(kMost)).size(0), 10);
  EXPECT_EQ(Dataset::from_tensor_slices(torch::arange(10)).batch(kMost).iterator().next()->size(), 10);
  EXPECT_EQ(ten.batch(kMost).take(1).skip(0).cardinality(), 1);
  EXPECT_EQ(ten.repeat(kMost).cardinality(), kMost) << "more than can be counted";
  EXPECT_EQ(first(ten.repeat(kMost)).item<int64_t>(), 0);
  EXPECT_EQ(ten.repeat(kMost).concatenate(ten.repeat(kMost)).cardinality(), kMost);
  EXPECT_EQ(ten.repeat(kMost).batch(2).cardinality(), kMost / 2 + 1);
  EXPECT_EQ(ten.repeat().batch(4).take(kMost).cardinality(), kMost);
  EXPECT_EQ(ten.shard(kMost, 3).cardinality(), 1);
  EXPECT_EQ(first(ten.shard(kMost, 3)).item<int64_t>(), 3);
  EXPECT_EQ(ten.shard(kMost, kMost - 1).cardinality(), 0);
  EXPECT_FALSE(ten.skip(kMost).iterator().next());
  // 2^62 steps of 2 each way from the middle; the last elements are as exact as the first.
  const Dataset wide = Dataset::range(kLeast, kMost, int64_t{1} << 62);
  EXPECT_EQ(count(wide), 4);
  EXPECT_EQ(wide.cardinality(), 4);
  EXPECT_EQ(first(wide.skip(3)).item<int64_t>(), int64_t{1} << 62);
  EXPECT_EQ(Dataset::range(kMost, kLeast, kLeast).cardinality(), 2);
  EXPECT_EQ(first(Dataset::range(kMost, kLeast, kLeast).skip(1)).item<int64_t>(), -1);
  EXPECT_EQ(Dataset::range(0, kMost, kMost).cardinality(), 1);
  EXPECT_EQ(Dataset::range(kMost).batch(2).cardinality(), kMost / 2 + 1);
  testing::expect_error<InvalidArgument>([] { (void)Dataset::range(kLeast, kMost); },
                                         "has 18446744073709551615 elements, wanted fewer than 2^63");
  const MirroredStrategy two({.devices = cpu_devices(2)});
  for (const AutoShard shard : {AutoShard::kData, AutoShard::kOff}) {
    const DistributedDataset steps = two.distribute(Dataset::range(kMost).batch(2), {.auto_shard = shard});
    EXPECT_EQ(steps.cardinality(), kMost / 2 + 1);
  }
}

TEST(CardinalityTest, WithoutAnEndOrANumberThereIsNoSize) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  const auto error_of = [](const auto& dataset) -> std::string {
    try {
      return std::to_string(dataset.size());
    } catch (const FailedPrecondition& error) {
      return error.what();
    }
  };
  const Dataset endless = Dataset::range(5).repeat().batch(2);
  EXPECT_EQ(endless.cardinality(), kInfiniteCardinality);
  EXPECT_THAT(error_of(endless), HasSubstr("the dataset never ends"));
  for (const AutoShard shard : {AutoShard::kData, AutoShard::kOff}) {
    EXPECT_EQ(two.distribute(endless, {.auto_shard = shard}).cardinality(), kInfiniteCardinality);
  }
  EXPECT_THAT(error_of(two.distribute(endless)), HasSubstr("the distributed dataset never ends"));
  EXPECT_EQ(two.distribute(endless.take(3), {.auto_shard = AutoShard::kOff}).size(), 3);

  const Dataset even = Dataset::range(5).filter([](const Example& e) { return e.x.item<int64_t>() % 2 == 0; });
  EXPECT_EQ(even.batch(2).cardinality(), kUnknownCardinality);
  EXPECT_THAT(error_of(even), HasSubstr("known only when they are read"));
  EXPECT_THAT(error_of(two.distribute(even.batch(2))),
              HasSubstr("the steps of the distributed dataset are known only"));
  // A short batch may be anywhere among those that are taken.
  const InputOptions off{.auto_shard = AutoShard::kOff};
  EXPECT_EQ(two.distribute(Dataset::range(10).batch(4).repeat(2).take(3), off).cardinality(), kUnknownCardinality);
  EXPECT_EQ(two.distribute(Dataset::range(10).batch(4).repeat(2).take(3)).size(), 3) << "batch by batch";

  testing::with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    const auto made = strategy.distribute_from_function(
        [](const InputContext& context) { return Dataset::range(4 + context.input_pipeline_id).batch(2); });
    EXPECT_EQ(made.cardinality(), kUnknownCardinality) << "the other worker has more";
  });
}

}  // namespace
}  // namespace cohort::cardinality_test
