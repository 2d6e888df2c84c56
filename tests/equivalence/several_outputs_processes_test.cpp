// The models of several_outputs_test.cpp in processes of their own, which `cohort launch` starts: workers that mirror,
// or parameter servers and their workers. Each process that has the weights compares them with those of one device.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/cluster/cluster_resolver.h"
#include "tests/equivalence/two_headed.h"

namespace cohort::equivalence::two_headed::several_outputs_processes_test {
namespace {

constexpr Kind kKinds[] = {{.by_name = false, .rows = 49}, {.by_name = true, .rows = 55}};

TEST(SeveralOutputsInProcesses, AreThoseOfOneDeviceOnWorkers) {
  const MultiWorkerMirroredStrategy strategy({.devices = cpu_devices(2)});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  for (const Kind& kind : kKinds) expect_like(under(strategy, kind), on_one_device(kind));
}

TEST(SeveralOutputsInProcesses, AreThoseOfOneDeviceOnShardingWorkers) {
  const MultiWorkerMirroredStrategy strategy({.devices = cpu_devices(2), .sharding = {.stage = 1}});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  for (const Kind& kind : kKinds) expect_like(under(strategy, kind), on_one_device(kind));
}

TEST(SeveralOutputsInProcesses, AreThoseOfOneDeviceOnGradientSharingWorkers) {
  const MultiWorkerMirroredStrategy strategy({.devices = cpu_devices(2), .sharding = {.stage = 2}});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  for (const Kind& kind : kKinds) expect_like(under(strategy, kind), on_one_device(kind));
}

TEST(SeveralOutputsInProcesses, AreThoseOfOneDeviceOnParameterServers) {
  const ParameterServerStrategy strategy({.variable_partitioner = FixedShardsPartitioner(2),
                                          .consistency = {.kind = Consistency::Kind::kSynchronous},
                                          .devices = {"/CPU:0"}});
  const Kind kind = kKinds[1];
  Outcome got;
  {
    const auto scope = strategy.scope();
    Model net = model(kind);
    if (strategy.serve()) return;
    got = train(kind, net);
  }
  expect_like(got, on_one_device(kind));
}

}  // namespace
}  // namespace cohort::equivalence::two_headed::several_outputs_processes_test
