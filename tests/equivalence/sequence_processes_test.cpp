// A decoder whose positions are divided among processes, which `cohort launch` starts, against one device.
#include "cohort/cluster/multi_worker_mesh.h"
#include "tests/equivalence/sequence_runs.h"

namespace cohort::equivalence::sequence_processes_test {
namespace {

TEST(SequenceInProcesses, LearnsAsOneDevice) {
  const sequence_runs::Net net{"decoder", [] { return sequence_runs::small_decoder(sequence_runs::small()); }};
  const Outcome wanted = sequence_runs::under(OneDeviceStrategy("/CPU:0"), net);
  for (const SequenceAttention way : {SequenceAttention::kRing, SequenceAttention::kUlysses}) {
    const MultiWorkerMeshStrategy strategy(
        DeviceMesh({2}, {"sequence"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"}), {.attention = way});
    ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
    expect_like(sequence_runs::under(strategy, net), wanted);
  }
}

}  // namespace
}  // namespace cohort::equivalence::sequence_processes_test
