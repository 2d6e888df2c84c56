// Transformers whose positions are divided among processes, which `cohort launch` starts, against one device.
#include "tests/equivalence/mesh_workers.h"
#include "tests/equivalence/sequence_runs.h"

namespace cohort::equivalence::sequence_processes_test {
namespace {

constexpr SequenceAttention kRing = SequenceAttention::kRing, kUlysses = SequenceAttention::kUlysses;

void expect_like_one_device(int processes, const sequence_runs::Net& net, const std::vector<SequenceAttention>& ways) {
  const Outcome wanted = sequence_runs::under(OneDeviceStrategy("/CPU:0"), net);
  for (const SequenceAttention way : ways) {
    SCOPED_TRACE(c10::str(net.name, way == kRing ? ", a ring" : ", by heads"));
    const MultiWorkerMeshStrategy strategy(DeviceMesh({processes}, {"sequence"}, devices_of_workers(processes, 1)),
                                           {.attention = way});
    ASSERT_EQ(strategy.num_workers(), processes) << "cohort launch --nproc starts this test";
    expect_like(sequence_runs::under(strategy, net), wanted);
  }
}

const sequence_runs::Net& decoder() {
  static const sequence_runs::Net net{"decoder", [] { return sequence_runs::small_decoder(sequence_runs::small()); }};
  return net;
}

TEST(SequenceInProcesses, LearnsAsOneDevice) {
  expect_like_one_device(2, decoder(), {kRing, kUlysses});
}

TEST(SequenceInThreeProcesses, LearnsAsOneDevice) {
  expect_like_one_device(3, decoder(), {kRing});
  expect_like_one_device(3, {"layers", [] { return sequence_runs::layers(/*causal=*/true); }}, {kUlysses});
}

}  // namespace
}  // namespace cohort::equivalence::sequence_processes_test
