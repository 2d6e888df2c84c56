// Models whose stages lie with processes, which `cohort launch` starts, against one device, with every schedule and
// with microbatches of different sizes.
#include "tests/equivalence/pipeline_workers.h"

namespace cohort::equivalence::pipeline_processes_test {
namespace {

using namespace pipeline_workers;

// It is cut by the time that its layers take on the chief.
TEST(PipelineInProcesses, LearnsAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"), adam(0.05));
  const MultiWorkerPipelineStrategy strategy(
      {.mesh = DeviceMesh({2}, {"stage"}, {"/job:worker/task:0/CPU:0", "/job:worker/task:1/CPU:0"}),
       .schedule = Schedule1F1B{.microbatches = 8}});
  ASSERT_EQ(strategy.num_workers(), 2) << "cohort launch --nproc=2 starts this test";
  expect_like(under(strategy, adam(0.05)), wanted);
}

TEST(PipelineInProcesses, LearnsBesideTheBatchAsOneDevice) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"));
  const MultiWorkerPipelineStrategy strategy({.mesh = mesh_of({.workers = 2, .devices = 2, .batch = 2}),
                                              .schedule = ScheduleZeroBubbleH1{.microbatches = 3},
                                              .cut = cut_of(2)});
  expect_like(under(strategy), wanted);
}

TEST(PipelineInProcesses, StagesOfPartsLearnAsOneDevice) {
  const mesh_runs::Net net = mesh_runs::nets()[3];
  const Outcome wanted = mesh_runs::under(OneDeviceStrategy("/CPU:0"), net, adam(0.05));
  for (const int batch : {1, 2}) {
    SCOPED_TRACE(batch);
    const MultiWorkerPipelineStrategy strategy(stages_of_parts(2, batch, ScheduleZeroBubbleH1{.microbatches = 3}));
    expect_like(mesh_runs::under(strategy, net, adam(0.05)), wanted);
  }
}

// A stage in each process.
void expect_like_one_device(int processes, const std::vector<PipelineScheduleOptions>& schedules) {
  const Outcome wanted = under(OneDeviceStrategy("/CPU:0"));
  for (const PipelineScheduleOptions& schedule : schedules) {
    SCOPED_TRACE(make_schedule(schedule, processes).name());
    const MultiWorkerPipelineStrategy strategy({.mesh = mesh_of({.workers = processes, .stages = processes}),
                                                .schedule = schedule,
                                                .cut = cut_of(processes * chunks_of(schedule))});
    ASSERT_EQ(strategy.num_workers(), processes) << "cohort launch --nproc starts this test";
    expect_like(under(strategy), wanted);
  }
}

TEST(PipelineInProcesses, SchedulesLearnAsOneDevice) {
  expect_like_one_device(2, {ScheduleGPipe{.microbatches = 5}, ScheduleInterleaved{.microbatches = 5},
                             ScheduleZeroBubbleH1{.microbatches = 5}});
}

TEST(PipelineInThreeProcesses, SchedulesLearnAsOneDevice) {
  expect_like_one_device(3, {ScheduleGPipe{.microbatches = 5}, Schedule1F1B{.microbatches = 5},
                             ScheduleInterleaved{.microbatches = 5}, ScheduleZeroBubbleH1{.microbatches = 5}});
}

}  // namespace
}  // namespace cohort::equivalence::pipeline_processes_test
