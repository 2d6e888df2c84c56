// The random numbers of several workers: those that read by themselves do not draw the same ones, those that divide
// what all of them read do, and a worker alone draws what it always drew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/distributed_dataset.h"
#include "tests/support/files.h"
#include "tests/support/workers.h"

namespace cohort::worker_numbers_test {
namespace {

using testing::TemporaryFolder;
using testing::with_workers;
using Values = std::vector<int64_t>;

Example draw(Example example, at::Generator generator) {
  example.x = torch::randint(1'000'000, {}, generator, torch::kLong);
  return example;
}

Values values_of(const DistributedDataset& dataset) {
  Values values;
  for (const GlobalBatch& batch : dataset) {
    for (const Example& share : batch) {
      for (int64_t i = 0; i < share.size(); ++i) values.push_back(share.x[i].item<int64_t>());
    }
  }
  return values;
}

// Returns what each of two workers takes of the data that make() gives.
using Make = std::function<DistributedDataset(const Strategy&)>;
std::vector<Values> of_workers(const Make& make) {
  std::vector<Values> seen(2);
  with_workers({.workers = 2}, [&](const MultiWorkerMirroredStrategy& strategy) {
    seen[static_cast<std::size_t>(strategy.worker_rank())] = values_of(make(strategy));
  });
  return seen;
}

bool have_common(const Values& one, const Values& two) {
  const std::set<int64_t> first(one.begin(), one.end());
  return std::any_of(two.begin(), two.end(), [&](int64_t value) { return first.contains(value); });
}

TEST(WorkerNumbers, WorkersThatReadByThemselvesDrawOtherNumbers) {
  torch::manual_seed(7);
  const Dataset drawn = Dataset::range(8).random_map(draw);
  const Dataset seeded = Dataset::range(8).random_map(draw, {.seed = 3});
  for (const Dataset& data : {drawn, seeded}) {
    const Make off = [&](const Strategy& strategy) {
      return strategy.distribute(data.batch(4), {.auto_shard = AutoShard::kOff});
    };
    const Make function = [&](const Strategy& strategy) {
      return strategy.distribute_from_function([&](const InputContext&) { return data.batch(2); });
    };
    // The datasets that interleave() opens, and their workers, divide the files.
    const Make files = [&](const Strategy& strategy) {
      const auto open = [&](const Example&) { return data; };
      return strategy.distribute(Dataset::range(2).interleave(open).batch(4), {.auto_shard = AutoShard::kFile});
    };
    for (const Make& make : {off, function, files}) {
      const std::vector<Values> seen = of_workers(make);
      EXPECT_EQ(seen[0].size(), 8U);
      EXPECT_EQ(std::set<int64_t>(seen[0].begin(), seen[0].end()).size(), 8U);
      EXPECT_FALSE(have_common(seen[0], seen[1]));
      EXPECT_EQ(of_workers(make), seen) << "the same seed and cluster";
    }
    // The first worker draws what a process alone draws.
    const DefaultStrategy alone;
    EXPECT_EQ(of_workers(off)[0], values_of(off(alone)));
    // What all workers read and divide has one number for each element.
    const std::vector<Values> divided = of_workers(
        [&](const Strategy& strategy) { return strategy.distribute(data.batch(8), {.auto_shard = AutoShard::kData}); });
    Values both = divided[0];
    both.insert(both.end(), divided[1].begin(), divided[1].end());
    const MirroredStrategy one({.devices = cpu_devices(1)});  // whose passes begin anew
    EXPECT_EQ(both, values_of(one.distribute(data.batch(8))));
  }
}

TEST(WorkerNumbers, AShuffleWithoutASeedHasAnOrderForEachWorker) {
  torch::manual_seed(7);
  const auto off = [](const Dataset& data) {
    return of_workers(
        [&](const Strategy& strategy) { return strategy.distribute(data.batch(4), {.auto_shard = AutoShard::kOff}); });
  };
  const std::vector<Values> orders = off(Dataset::range(50).shuffle(50));
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_THAT(orders[1], ::testing::UnorderedElementsAreArray(orders[0]));
  EXPECT_EQ(orders[0], values_of(DefaultStrategy().distribute(Dataset::range(50).shuffle(50).batch(4))));
  for (const ShuffleOptions& same : {ShuffleOptions{.seed = 5}, ShuffleOptions{.reshuffle_each_iteration = false}}) {
    const std::vector<Values> alike = off(Dataset::range(50).shuffle(50, same));
    EXPECT_EQ(alike[0], alike[1]) << "an order that was asked for";
  }
  // Parts that the workers cut themselves are parts of one order.
  const std::vector<Values> parts = of_workers([](const Strategy& strategy) {
    return strategy.distribute_from_function([](const InputContext& context) {
      return Dataset::range(50).shuffle(50).shard(2, context.input_pipeline_id).batch(5);
    });
  });
  EXPECT_EQ(parts[0].size(), 25U);
  EXPECT_FALSE(have_common(parts[0], parts[1]));
}

// A file that another worker wrote would bring its numbers back in the next process.
TEST(WorkerNumbers, CacheFilesAreTheWorkersOwn) {
  const TemporaryFolder folder;
  const Make make = [&](const Strategy& strategy) {
    return strategy.distribute(Dataset::range(8).random_map(draw, {.seed = 3}).cache(folder / "kept").batch(4),
                               {.auto_shard = AutoShard::kOff});
  };
  const std::vector<Values> seen = of_workers(make);
  EXPECT_FALSE(have_common(seen[0], seen[1]));
  EXPECT_EQ(of_workers(make), seen);
  EXPECT_TRUE(std::filesystem::exists(folder / "kept") && std::filesystem::exists(folder / "kept-worker-1"));
}

// tests/equivalence/dropout_processes_test.cpp has what workers draw.
TEST(WorkerNumbers, AProcessAloneDrawsLibTorchsNumbers) {
  torch::manual_seed(1);
  const torch::Tensor wanted = torch::nn::Dropout(0.5)(torch::ones({1, 64}));
  torch::manual_seed(1);
  const auto masks = DefaultStrategy().run([](Replica&) { return torch::nn::Dropout(0.5)(torch::ones({1, 64})); });
  EXPECT_TRUE(torch::equal(masks[0], wanted));
}

}  // namespace
}  // namespace cohort::worker_numbers_test
