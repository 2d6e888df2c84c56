// A model whose stages lie with processes, which `cohort launch` starts, against one device. It is cut by the time that
// its layers take on the chief.
#include "tests/equivalence/pipeline_workers.h"

namespace cohort::equivalence::pipeline_processes_test {
namespace {

using namespace pipeline_workers;

TEST(PipelineInProcesses, LearnsAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), adam(0.05));
  const MultiWorkerPipelineStrategy strategy(
      {.mesh = DeviceMesh({2}, {"stage"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"}),
       .schedule = Schedule1F1B{.microbatches = 8}});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  expect_like(under(strategy, adam(0.05)), wanted);
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_processes_test
