#include "cohort/replica.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/distributed_dataset.h"
#include "cohort/error.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"

namespace cohort::replica_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

MirroredStrategy mirrored(int replicas) {
  return MirroredStrategy({.devices = cpu_devices(replicas)});
}

TEST(Replica, MergeCallRunsOnceAcrossReplicas) {
  for (const int replicas : {1, 2, 4}) {
    const auto strategy = mirrored(replicas);
    std::atomic<int> calls{0};
    const auto results = strategy.run([&](Replica& replica) {
      const int total = replica.merge_call(
          [&](const Strategy& inside, const PerReplica<int>& ids) {
            calls.fetch_add(1);
            EXPECT_TRUE(in_cross_replica_context());
            EXPECT_EQ(Replica::current(), nullptr);
            EXPECT_EQ(inside.num_replicas_in_sync(), replicas);
            int sum = 0;
            for (const int id : ids) sum += id;
            return sum;
          },
          replica.id() + 1);
      const int own = replica.merge_call([](const Strategy&, PerReplica<int> ids) { return ids; }, replica.id() * 2);
      EXPECT_EQ(Replica::current(), &replica);
      return 100 * total + own;
    });
    EXPECT_EQ(calls.load(), 1);
    for (int i = 0; i < replicas; ++i) {
      EXPECT_EQ(results[static_cast<std::size_t>(i)], 100 * replicas * (replicas + 1) / 2 + 2 * i);
    }
  }
}

// A class that is derived from PerReplica is one.
TEST(Replica, MergeCallGivesEachReplicaItsShareOfABatch) {
  const auto strategy = mirrored(2);
  const GlobalBatch batch({Example{.x = torch::zeros({3})}, Example{.x = torch::ones({2})}}, 5);
  EXPECT_EQ(strategy.local_results(batch).size(), 2U);
  EXPECT_EQ(strategy.local_results(batch)[1].size(), 2);
  EXPECT_EQ(strategy.local_results(7), (std::vector<int>{7}));
  const auto sizes = strategy.run([&](Replica& replica) {
    const Example share = replica.merge_call([&](const Strategy&) { return batch; });
    return share.size();
  });
  EXPECT_EQ(sizes.values(), (std::vector<int64_t>{3, 2}));
}

TEST(Replica, AllReduceSumsAndItsGradientSumsToo) {
  const auto strategy = mirrored(3);
  const auto gradients = strategy.run([](Replica& replica) {
    auto x = torch::full({2}, replica.id() + 1.0, torch::requires_grad());
    const auto sum = replica.all_reduce(ReduceOp::kSum, x);
    EXPECT_TRUE(torch::equal(sum, torch::full({2}, 6.0)));
    (sum * (replica.id() + 1)).sum().backward();
    return x.grad();
  });
  for (const auto& gradient : gradients) EXPECT_TRUE(torch::equal(gradient, torch::full({2}, 6.0)));
  const auto means = strategy.run([](Replica& replica) {
    auto x = torch::full({2}, replica.id() + 1.0, torch::requires_grad());
    replica.all_reduce(ReduceOp::kMean, x).sum().backward();
    return x.grad();
  });
  for (const auto& gradient : means) EXPECT_TRUE(torch::allclose(gradient, torch::ones({2})));
}

TEST(Replica, AllGatherTakesUnevenSizesAndSendsBackEachRange) {
  const auto strategy = mirrored(3);
  const auto gradients = strategy.run([](Replica& replica) {
    auto x = torch::full({2, replica.id() + 1}, replica.id(), torch::dtype(torch::kDouble).requires_grad(true));
    const auto all = replica.all_gather(x, 1);
    EXPECT_EQ(all.sizes(), (at::IntArrayRef{2, 6}));
    EXPECT_TRUE(torch::equal(all[0], torch::tensor({0, 1, 1, 2, 2, 2}, torch::kDouble)));
    (all * torch::arange(6, torch::kDouble) * (replica.id() + 1)).sum().backward();
    return x.grad();
  });
  EXPECT_TRUE(torch::equal(gradients[0][0], torch::tensor({0.0}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(gradients[1][1], torch::tensor({6.0, 12.0}, torch::kDouble)));
  EXPECT_TRUE(torch::equal(gradients[2][0], torch::tensor({18.0, 24.0, 30.0}, torch::kDouble)));
  EXPECT_THROW(strategy.run([](Replica& replica) { replica.all_gather(torch::tensor(1.0)); }), InvalidArgument);
}

PerReplica<Example> shares(std::vector<int64_t> sizes) {
  std::vector<Example> list;
  for (const int64_t size : sizes) list.push_back({.x = torch::ones({size, 2}, torch::kDouble)});
  return PerReplica<Example>(std::move(list));
}

TEST(Replica, GlobalMeanDividesByTheTrueGlobalBatch) {
  const auto strategy = mirrored(3);
  const auto batch = shares({4, 1, 0});
  const auto parts = strategy.run(
      [](Replica& replica, const Example& share) {
        EXPECT_EQ(replica.global_batch_size(), 5);
        return replica.global_mean(share.x.sum(1) * (replica.id() + 1));
      },
      batch);
  EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::kSum, parts).item<double>(), (4 * 2 + 1 * 4) / 5.0);
  // Several values an example, and weights.
  const auto weighted = strategy.run(
      [](Replica& replica, const Example& share) {
        return replica.global_mean(share.x, torch::full({share.size()}, 0.5, torch::kDouble));
      },
      batch);
  EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::kSum, weighted).item<double>(), 0.5);
}

// The values are like the tokens of texts: what an empty share is flattened to does not say how many values an example
// has.
TEST(Replica, GlobalMeanOfFlattenedValuesBearsEmptyShares) {
  const auto strategy = mirrored(3);
  for (const auto& sizes : {std::vector<int64_t>{4, 1, 0}, {2, 0, 0}, {3, 2, 1}}) {
    const auto parts = strategy.run(
        [](Replica& replica, const Example& share) { return replica.global_mean(share.x.reshape({-1}) * 3); },
        shares(sizes));
    EXPECT_DOUBLE_EQ(strategy.reduce(ReduceOp::kSum, parts).item<double>(), 3.0);
  }
}

TEST(Replica, TheFirstBatchAmongTheArgumentsCounts) {
  const auto strategy = mirrored(2);
  const auto batch = [](std::vector<int64_t> sizes, int64_t global_size) {
    const auto list = shares(std::move(sizes));
    return GlobalBatch({list.begin(), list.end()}, global_size);
  };
  strategy.run(
      [](Replica& replica, const Example&, const Example& second) {
        EXPECT_EQ(replica.global_batch_size(), 12);
        EXPECT_EQ(second.size(), 1);
      },
      batch({4, 2}, 12), batch({1, 1}, 2));
}

TEST(Replica, GlobalMeanCountsTogetherWhenItDoesNotKnowTheBatch) {
  const auto strategy = mirrored(2);
  const auto parts = strategy.run([](Replica& replica) {
    EXPECT_FALSE(replica.global_batch_size());
    return replica.global_mean(torch::ones({replica.id() == 0 ? 3 : 1}));
  });
  EXPECT_FLOAT_EQ(strategy.reduce(ReduceOp::kSum, parts).item<float>(), 1.0F);
  EXPECT_THAT(error_of<InvalidArgument>([&] { strategy.run([](Replica& r) { r.global_mean(torch::tensor(1.0)); }); }),
              HasSubstr("needs one value an example"));
}

TEST(Replica, StreamsOfRandomNumbersAreReproducibleAndDiffer) {
  const auto draw = [](const Strategy& strategy) {
    return strategy.run([](Replica& replica) { return torch::rand({4}, replica.generator()); });
  };
  const auto strategy = mirrored(2);
  strategy.set_seed(7);
  const auto first = draw(strategy);
  EXPECT_FALSE(torch::equal(first[0], first[1]));
  strategy.set_seed(7);
  const auto again = draw(strategy);
  EXPECT_TRUE(torch::equal(first[0], again[0]));
  EXPECT_TRUE(torch::equal(first[1], again[1]));
}

}  // namespace
}  // namespace cohort::replica_test
