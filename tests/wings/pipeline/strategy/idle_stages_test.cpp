// Which stages have nothing to do while another one works, whatever time each action takes.
#include "wings/pipeline/strategy/idle_stages.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace cohort::idle_stages_test {
namespace {

// Returns a stage's work, with the numbers of those that have nothing to do meanwhile: "F0 1, B0".
std::string course(const PipelineSchedule& schedule, const IdleStages& idle, int stage) {
  std::ostringstream out;
  const auto& actions = schedule.stages()[static_cast<std::size_t>(stage)];
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto op = static_cast<std::size_t>(actions[i].op);
    if (op > static_cast<std::size_t>(PipelineOp::kWeight)) {
      EXPECT_TRUE(idle.during(stage, i).empty());
      continue;
    }
    out << (out.tellp() == 0 ? "" : ", ") << "FBW"[op] << actions[i].microbatch;
    for (const int other : idle.during(stage, i)) out << " " << other;
  }
  return out.str();
}

TEST(IdleStages, AreThoseBehindTheFirstForwardAndBeforeTheLastBackward) {
  const PipelineSchedule schedule = make_schedule(Schedule1F1B{.microbatches = 3}, 3);
  const IdleStages idle(schedule, 0, 3);
  EXPECT_EQ(course(schedule, idle, 0), "F0 1 2, F1, F2, B0, B1, B2 1 2");
  EXPECT_EQ(course(schedule, idle, 1), "F0 2, F1, B0, F2, B1, B2 2");
  EXPECT_EQ(course(schedule, idle, 2), "F0, B0, F1, B1, F2, B2");
}

TEST(IdleStages, AreAllOthersOfASingleMicrobatchAtItsEnds) {
  const PipelineSchedule schedule = make_schedule(ScheduleGPipe{.microbatches = 1}, 2);
  const IdleStages idle(schedule, 0, 2);
  EXPECT_EQ(course(schedule, idle, 0), "F0 1, B0 1");
  EXPECT_EQ(course(schedule, idle, 1), "F0, B0");
}

TEST(IdleStages, OfAProcessAreCountedFromItsFirst) {
  const PipelineSchedule schedule = make_schedule(ScheduleGPipe{.microbatches = 2}, 4);
  const IdleStages idle(schedule, 2, 2);
  EXPECT_EQ(course(schedule, idle, 2), "F0 1, F1, B0, B1 1");
  EXPECT_EQ(course(schedule, idle, 0), "F0 0 1, F1, B0, B1 0 1");
}

TEST(IdleStages, WithWeightsApartAreThoseThatHaveDoneThem) {
  const PipelineSchedule schedule = make_schedule(ScheduleZeroBubbleH1{.microbatches = 2}, 2);
  const IdleStages idle(schedule, 0, 2);
  const std::string first = course(schedule, idle, 0);
  EXPECT_TRUE(first.starts_with("F0 1, F1, ")) << first;
  EXPECT_EQ(first.find(" 1", first.find("F1")), std::string::npos)
      << "stage 1 ends with a weight of its own: " << first;
}

}  // namespace
}  // namespace cohort::idle_stages_test
