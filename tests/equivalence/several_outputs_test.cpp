// Models with several inputs and outputs, by position and by name, with weights, masks and uneven or empty shares:
// under every strategy the numbers of one device.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <mutex>

#include "models/command/strategy_table.h"
#include "tests/equivalence/two_headed.h"
#include "tests/support/server_cluster.h"
#include "tests/support/workers.h"

namespace cohort::equivalence::two_headed::several_outputs_test {
namespace {

class SeveralOutputs : public ::testing::TestWithParam<Kind> {};

TEST_P(SeveralOutputs, LearnOnOneDevice) {
  const Outcome outcome = on_one_device(GetParam());
  EXPECT_EQ(outcome.history.names().at(0), "loss");
  EXPECT_LT(outcome.history["loss"].back(), 0.8 * outcome.history["loss"].front());
  const Outcome again = on_one_device(GetParam());
  for (std::size_t i = 0; i < again.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(again.weights[i].second, outcome.weights[i].second));
  }
}

TEST_P(SeveralOutputs, AreThoseOfOneDeviceUnderEveryStrategyOfTheTable) {
  const Outcome wanted = on_one_device(GetParam());
  int trained = 0;
  for (const StrategyRow& row : strategy_table()) {
    for (const int64_t replicas : {1, 2, 3}) {
      const bool here =
          row.takes == StrategyTakes::kReplicas || (row.takes == StrategyTakes::kOneReplica && replicas == 1);
      if (!here) continue;
      SCOPED_TRACE(c10::str(row.name, " with ", replicas, " replicas"));
      expect_like(under(make_strategy({.distribution_strategy = row.name, .num_replicas = replicas}), GetParam()),
                  wanted);
      ++trained;
    }
  }
  EXPECT_GE(trained, 11) << "off, one_device, and three counts of mirrored, multi_worker_mirrored and central_storage";
}

TEST_P(SeveralOutputs, AreThoseOfOneDeviceHoweverGradientsAreSummed) {
  const Outcome wanted = on_one_device(GetParam());
  for (const char* ops : {"reduction_to_one_device", "hierarchical_copy"}) {
    SCOPED_TRACE(ops);
    const MirroredStrategy strategy({.devices = cpu_devices(3), .exchange = {.cross_device_ops = ops}});
    expect_like(under(strategy, GetParam()), wanted);
  }
}

TEST_P(SeveralOutputs, AreThoseOfOneDeviceOnWorkers) {
  const Outcome wanted = on_one_device(GetParam());
  for (const testing::WorkersOptions& group :
       {testing::WorkersOptions{.workers = 2}, {.workers = 2, .replicas = 2}, {.workers = 3}}) {
    SCOPED_TRACE(c10::str(group.workers, " workers of ", group.replicas, " replicas"));
    std::mutex mutex;
    std::vector<Outcome> outcomes;
    testing::with_workers(group, [&](const MultiWorkerMirroredStrategy& strategy) {
      Outcome outcome = under(strategy, GetParam());
      const std::lock_guard lock(mutex);
      outcomes.push_back(std::move(outcome));
    });
    for (const Outcome& each : outcomes) expect_like(each, wanted);
  }
}

TEST_P(SeveralOutputs, AreThoseOfOneDeviceOnParameterServers) {
  const Outcome wanted = on_one_device(GetParam());
  const ParameterServerOptions together{.variable_partitioner = FixedShardsPartitioner(2),
                                        .consistency = {.kind = Consistency::Kind::kSynchronous}};
  for (const testing::ServerClusterOptions& cluster :
       {testing::ServerClusterOptions{.servers = 2}, {.servers = 2, .workers = 3, .strategy = together}}) {
    SCOPED_TRACE(c10::str(cluster.workers, " workers"));
    Outcome got;
    testing::ServerCluster(cluster).run([&](const ParameterServerOptions& own) {
      const ParameterServerStrategy strategy(own);
      const auto scope = strategy.scope();
      Model net = model(GetParam());
      if (strategy.serve()) return;
      got = train(GetParam(), net);
    });
    expect_like(got, wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SeveralOutputs, ::testing::Values(Kind{false, 55}, Kind{true, 55}, Kind{false, 49}),
                         [](const auto& info) {
                           return c10::str(info.param.by_name ? "by_name_" : "by_position_", info.param.rows);
                         });

}  // namespace
}  // namespace cohort::equivalence::two_headed::several_outputs_test
