#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"

namespace cohort::distributed_input_test {
namespace {

using Sizes = std::vector<int64_t>;

std::vector<Sizes> steps_of(const DistributedDataset& dataset) {
  std::vector<Sizes> steps;
  for (const GlobalBatch& batch : dataset) {
    steps.emplace_back();
    int64_t total = 0;
    for (const Example& share : batch) {
      steps.back().push_back(share.size());
      total += share.size();
      EXPECT_EQ(share.x.dim(), 2) << "an empty share keeps the other dimensions";
    }
    EXPECT_EQ(batch.global_size(), total);
  }
  return steps;
}

Dataset rows(int64_t count) {
  return Dataset::from_tensor_slices(torch::rand({count, 3}), torch::arange(count));
}

TEST(DistributedInput, SplitsGlobalBatchesAsTheReferenceSays) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  EXPECT_EQ(steps_of(two.distribute(rows(10).batch(4))), (std::vector<Sizes>{{2, 2}, {2, 2}, {1, 1}}));
  EXPECT_EQ(two.distribute(rows(10).batch(4)).cardinality(), 3);
  const MirroredStrategy three({.devices = cpu_devices(3)});
  EXPECT_EQ(steps_of(three.distribute(rows(11).batch(4))), (std::vector<Sizes>{{2, 2, 0}, {2, 2, 0}, {1, 1, 1}}));
  EXPECT_EQ(steps_of(three.distribute(rows(5).batch(4), {.prefetch_steps = 0})),
            (std::vector<Sizes>{{2, 2, 0}, {1, 0, 0}}));
}

TEST(DistributedInput, SizesGoOnOverTheBordersOfBatchesWhereNothingIsSharded) {
  const InputOptions off{.auto_shard = AutoShard::kOff};
  const MirroredStrategy two({.devices = cpu_devices(2)});
  EXPECT_EQ(steps_of(two.distribute(rows(10).batch(4), off)), (std::vector<Sizes>{{2, 2}, {2, 2}, {2, 0}}));
  const MirroredStrategy three({.devices = cpu_devices(3)});
  EXPECT_EQ(steps_of(three.distribute(rows(11).batch(4), off)), (std::vector<Sizes>{{2, 1, 1}, {2, 1, 1}, {2, 1, 0}}));
}

TEST(DistributedInput, AFunctionsStepWithoutABatchForEachReplicaIsLeftOutWhereBatchesAreFull) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  const auto batches = [](bool drop) {
    return [drop](const InputContext&) { return rows(10).batch(3, {.drop_remainder = drop}); };
  };
  const DistributedDataset full = two.distribute_from_function(batches(true));
  EXPECT_EQ(steps_of(full), (std::vector<Sizes>{{3, 3}}));
  EXPECT_EQ(full.cardinality(), 1);
  EXPECT_EQ(steps_of(two.distribute_from_function(batches(false))), (std::vector<Sizes>{{3, 3}, {3, 1}}));
}

TEST(DistributedInput, CutsBatchesOfUnknownSizePieceByPiece) {
  const MirroredStrategy three({.devices = cpu_devices(3)});
  const Dataset generated = Dataset::from_generator(
      [] {
        return [i = 0]() mutable {
          return i++ < 2 ? std::optional<Example>({.x = torch::zeros({4, 1}), .y = torch::zeros({4})}) : std::nullopt;
        };
      },
      {.batched = true});
  EXPECT_EQ(steps_of(three.distribute(generated)), (std::vector<Sizes>{{2, 2, 0}, {2, 2, 0}}));
}

TEST(DistributedInput, OneDeviceGetsTheDatasetsOwnBatches) {
  EXPECT_EQ(steps_of(OneDeviceStrategy("/CPU:0").distribute(rows(5).batch(2))), (std::vector<Sizes>{{2}, {2}, {1}}));
  EXPECT_EQ(steps_of(DefaultStrategy().distribute(rows(5).batch(2))), (std::vector<Sizes>{{2}, {2}, {1}}));
}

TEST(DistributedInput, FromAFunctionEachReplicaTakesOneElement) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  const auto make = [](const InputContext& context) {
    EXPECT_EQ(context.num_input_pipelines, 1);
    EXPECT_EQ(context.num_replicas_in_sync, 2);
    return rows(9).batch(context.per_replica_batch_size(6));
  };
  EXPECT_EQ(steps_of(two.distribute_from_function(make)), (std::vector<Sizes>{{3, 3}, {3, 0}}));
  EXPECT_THROW(two.input_context().per_replica_batch_size(5), InvalidArgument);
}

TEST(DistributedInput, RefusesWhatIsNotBatched) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  try {
    two.distribute(rows(4));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("call batch(global batch size)"));
  }
}

TEST(DistributedInput, NextInsideAReplicaIsRefused) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  auto iterator = two.distribute(rows(8).batch(4)).iterator();
  EXPECT_THROW(two.run([&](Replica&) { iterator.next(); }), FailedPrecondition);
}

TEST(DistributedInput, AnErrorInThePipelineArrivesAtTheLoop) {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  const Dataset broken = rows(8).map([](Example e) {
    if (e.y.item<int64_t>() == 5) throw DataLoss("[test] row 5 is damaged");
    return e;
  });
  auto iterator = two.distribute(broken.batch(4)).iterator();
  EXPECT_TRUE(iterator.next());
  EXPECT_THROW(iterator.next(), DataLoss);
}

}  // namespace
}  // namespace cohort::distributed_input_test
