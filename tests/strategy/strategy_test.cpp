#include "cohort/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "base/access.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::strategy_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

MirroredStrategy mirrored(int replicas) {
  return MirroredStrategy({.devices = cpu_devices(replicas)});
}

PerReplica<torch::Tensor> per_replica(std::vector<torch::Tensor> values) {
  return PerReplica<torch::Tensor>(std::move(values));
}

TEST(Strategy, RunCallsEveryReplicaOnItsOwnThreadWithItsComponent) {
  for (const int replicas : {1, 2, 3, 5}) {
    const auto strategy = mirrored(replicas);
    std::vector<int> inputs;
    for (int i = 0; i < replicas; ++i) inputs.push_back(10 * i);
    const std::string plain = "plain";
    const auto results = strategy.run(
        [](Replica& replica, int component, const std::string& text) {
          EXPECT_EQ(Replica::current(), &replica);
          EXPECT_EQ(text, "plain");
          return std::pair(replica.id() + component, std::this_thread::get_id());
        },
        PerReplica<int>(inputs), plain);
    ASSERT_EQ(results.size(), static_cast<std::size_t>(replicas));
    for (int i = 0; i < replicas; ++i) {
      EXPECT_EQ(results[static_cast<std::size_t>(i)].first, 11 * i);
      for (int j = 0; j < i; ++j) {
        EXPECT_NE(results[static_cast<std::size_t>(i)].second, results[static_cast<std::size_t>(j)].second);
      }
    }
  }
}

// As in TensorFlow 2.21.
TEST(Strategy, WithoutGpusAMirroredStrategyHasAReplicaForEachLogicalCpu) {
  if (!list_logical_devices("GPU").empty()) GTEST_SKIP() << "GPUs are here";
  (void)cpu_devices(2);
  const auto cpus = static_cast<int>(list_logical_devices("CPU").size());
  EXPECT_GE(cpus, 2);
  EXPECT_EQ(MirroredStrategy().num_replicas_in_sync(), cpus);
}

TEST(Strategy, RunTakesFunctionsWithoutAReplicaAndReturnsNothingForVoid) {
  const auto strategy = mirrored(2);
  EXPECT_THAT(strategy.run([](int x) { return x + 1; }, PerReplica<int>({1, 2})).values(), ElementsAre(2, 3));
  std::atomic<int> calls{0};
  strategy.run([&] { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 2);
  // Arguments are const, and bind to auto& as well.
  const PerReplica<Example> shares({Example{.x = torch::ones({1})}, Example{.x = torch::ones({2})}});
  const auto sizes = strategy.run([](Replica&, auto& share, auto& rows) { return share.size() + rows.numel(); }, shares,
                                  torch::ones({3}));
  EXPECT_THAT(sizes.values(), ElementsAre(4, 5));
}

TEST(Strategy, RunKeepsGradModeOfTheCaller) {
  const auto strategy = mirrored(2);
  const torch::NoGradGuard no_grad;
  EXPECT_THAT(strategy.run([] { return static_cast<int>(torch::GradMode::is_enabled()); }).values(), ElementsAre(0, 0));
}

TEST(Strategy, TopologyHasOneAxisOfAllReplicas) {
  for (const int replicas : {1, 3}) {
    const auto strategy = mirrored(replicas);
    EXPECT_EQ(strategy.topology().axes(), (std::vector<Axis>{{"batch", replicas}}));
    EXPECT_EQ(strategy.topology().num_processes(), 1);
    strategy.run([&](Replica& replica) {
      EXPECT_EQ(replica.group("batch").size(), replicas);
      EXPECT_EQ(replica.group("batch").rank(), replica.id());
      EXPECT_EQ(strategy.topology().place(replica.id()).device, replica.logical_device().spec);
      EXPECT_THAT(error_of<NotFound>([&] { (void)replica.group("model"); }), HasSubstr("no axis \"model\""));
    });
  }
}

TEST(Strategy, ReduceWithoutAxisIsElementwise) {
  const auto strategy = mirrored(3);
  const auto values = per_replica({torch::tensor({1.0, 2.0}), torch::tensor({3.0, 4.0}), torch::tensor({5.0, 9.0})});
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::kSum, values), torch::tensor({9.0, 15.0})));
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::kMean, values), torch::tensor({3.0, 5.0})));
  EXPECT_TRUE(torch::equal(strategy.reduce(parse_reduce_op("sum"), values), torch::tensor({9.0, 15.0})));
  EXPECT_THROW(parse_reduce_op("max"), InvalidArgument);
  EXPECT_THAT(error_of<InvalidArgument>([&] {
                strategy.reduce(ReduceOp::kSum, per_replica({torch::zeros({2}), torch::zeros({3}), torch::zeros({2})}));
              }),
              HasSubstr("the replicas' shapes differ"));
}

TEST(Strategy, ReduceOverNoAxesIsElementwise) {
  const auto strategy = mirrored(2);
  const auto values = per_replica({torch::tensor({1.0, 2.0}), torch::tensor({3.0, 8.0})});
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::kMean, values, {}), torch::tensor({2.0, 5.0})));
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::kSum, values, {}), torch::tensor({4.0, 10.0})));
}

TEST(Strategy, ReduceWithAxisWeighsUnevenAndEmptyShares) {
  const auto strategy = mirrored(3);
  const auto values =
      per_replica({torch::tensor({1.0, 2.0, 3.0}), torch::tensor({10.0}), torch::zeros({0}, torch::kDouble)});
  EXPECT_EQ(strategy.reduce(ReduceOp::kSum, values, 0).item<double>(), 16.0);
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, values, -1).item<double>(), 4.0);
  const auto matrices = per_replica({torch::ones({2, 3}), torch::ones({1, 3}) * 4, torch::ones({3, 3})});
  EXPECT_TRUE(torch::equal(strategy.reduce(ReduceOp::kSum, matrices, 0), torch::full({3}, 9.0F)));
  EXPECT_EQ(strategy.reduce(ReduceOp::kMean, matrices, at::IntArrayRef{0, 1}).item<float>(), 27.0F / 18.0F);
  EXPECT_THAT(error_of<InvalidArgument>([&] { strategy.reduce(ReduceOp::kMean, values, 1); }),
              HasSubstr("axis 1 of a value of rank 1"));
}

TEST(Strategy, AValueThatIsTheSameEverywhereHasNoSum) {
  EXPECT_EQ(mirrored(2).reduce(ReduceOp::kMean, torch::tensor(3.0)).item<double>(), 3.0);
  EXPECT_THROW(mirrored(2).reduce(ReduceOp::kSum, torch::tensor(3.0)), InvalidArgument);
  EXPECT_EQ(OneDeviceStrategy("/CPU:0").reduce(ReduceOp::kSum, torch::tensor(3.0)).item<double>(), 3.0);
}

TEST(Strategy, GatherConcatenatesInReplicaOrder) {
  const auto strategy = mirrored(2);
  const auto values = per_replica({torch::tensor({{1, 2}}), torch::tensor({{3, 4}, {5, 6}})});
  EXPECT_TRUE(torch::equal(strategy.gather(values, 0), torch::tensor({{1, 2}, {3, 4}, {5, 6}})));
  EXPECT_THROW(strategy.gather(per_replica({torch::tensor(1), torch::tensor(2)}), 0), InvalidArgument);
  EXPECT_THROW(strategy.gather(per_replica({torch::eye(2).to_sparse(), torch::eye(2).to_sparse()}), 0),
               InvalidArgument);
}

TEST(Strategy, LocalResultsAndValuesFromAFunction) {
  const auto strategy = mirrored(3);
  const auto values = strategy.values_from_function(
      [](const ValueContext& context) { return context.replica_id_in_sync_group * 10 + context.num_replicas_in_sync; });
  EXPECT_THAT(strategy.local_results(values), ElementsAre(3, 13, 23));
  EXPECT_THAT(strategy.local_results(7), ElementsAre(7));
  EXPECT_THROW(values[3], InvalidArgument);
}

TEST(Strategy, ScopeMakesItCurrent) {
  EXPECT_FALSE(has_strategy());
  EXPECT_FALSE(in_cross_replica_context());
  EXPECT_EQ(current_strategy().name(), "off");
  const auto strategy = mirrored(2);
  {
    const auto scope = strategy.scope();
    const auto again = strategy.scope();
    EXPECT_TRUE(has_strategy());
    EXPECT_TRUE(in_cross_replica_context());
    EXPECT_EQ(Access::core(current_strategy()), Access::core(strategy));
    const auto other = mirrored(2);
    EXPECT_THAT(error_of<FailedPrecondition>([&] { const auto mixed = other.scope(); }),
                HasSubstr("strategies do not mix"));
    strategy.run([&](Replica&) {
      EXPECT_FALSE(in_cross_replica_context());
      EXPECT_EQ(Access::core(current_strategy()), Access::core(strategy));
    });
    EXPECT_EQ(Replica::current(), nullptr);
  }
  EXPECT_FALSE(has_strategy());
}

TEST(Strategy, CrossReplicaMethodsAreRefusedInsideAReplica) {
  const auto strategy = mirrored(2);
  const auto values = per_replica({torch::zeros({1}), torch::zeros({1})});
  EXPECT_THAT(error_of<FailedPrecondition>([&] { strategy.run([&] { strategy.reduce(ReduceOp::kSum, values); }); }),
              HasSubstr("it needs the cross-replica context"));
  EXPECT_THROW(strategy.run([&] { strategy.run([] {}); }), FailedPrecondition);
  EXPECT_THROW(strategy.run([&] { const auto scope = strategy.scope(); }), FailedPrecondition);
}

TEST(Strategy, DevicesAreChecked) {
  EXPECT_THAT(error_of<InvalidArgument>([] {
                MirroredStrategy({.devices = {"/CPU:0", "cpu:0"}});
              }),
              HasSubstr("is named twice"));
  EXPECT_THAT(error_of<NotFound>([] { MirroredStrategy({.devices = {"/GPU:77"}}); }),
              HasSubstr("there is no /device:GPU:77"));
  EXPECT_THAT(error_of<InvalidArgument>([] { MirroredStrategy({.devices = {"/job:worker/task:1/CPU:0"}}); }),
              HasSubstr("belongs to another process"));
  EXPECT_THROW(MirroredStrategy({.devices = cpu_devices(2), .exchange = {.cross_device_ops = "tree"}}),
               InvalidArgument);
  EXPECT_THROW(CentralStorageStrategy({.compute_devices = cpu_devices(2), .exchange = {.cross_device_ops = "ring"}}),
               InvalidArgument);
  EXPECT_THROW(MirroredStrategy({.devices = cpu_devices(2), .exchange = {.num_packs = 2, .bytes_per_pack = 64}}),
               InvalidArgument);
  EXPECT_EQ(mirrored(2).cross_device_ops(), "ring");
  EXPECT_EQ(CentralStorageStrategy({.compute_devices = cpu_devices(2)}).cross_device_ops(), "reduction_to_one_device");
  EXPECT_EQ(mirrored(3).worker_devices()[2].name(), "/CPU:2");
}

}  // namespace
}  // namespace cohort::strategy_test
