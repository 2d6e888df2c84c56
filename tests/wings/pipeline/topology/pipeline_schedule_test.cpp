#include "cohort/parallel/pipeline_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::pipeline_schedule_test {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr PipelineAction forward(int microbatch, int chunk) {
  return {PipelineOp::kForward, microbatch, chunk};
}
constexpr PipelineAction backward(int microbatch, int chunk) {
  return {PipelineOp::kBackward, microbatch, chunk};
}

std::vector<PipelineScheduleOptions> kinds(int microbatches) {
  return {ScheduleGPipe{.microbatches = microbatches}, Schedule1F1B{.microbatches = microbatches},
          ScheduleZeroBubbleH1{.microbatches = microbatches}, ScheduleInterleaved{.microbatches = microbatches},
          ScheduleInterleaved{.microbatches = microbatches, .chunks = 3}};
}

// Calls fn for every schedule of few stages and microbatches.
template <typename Fn>
void for_all(const Fn& fn) {
  for (int stages = 1; stages <= 4; ++stages) {
    for (int microbatches = 1; microbatches <= 9; ++microbatches) {
      for (const PipelineScheduleOptions& options : kinds(microbatches)) {
        const PipelineSchedule schedule = make_schedule(options, stages);
        SCOPED_TRACE(c10::str(schedule.name(), ", ", stages, " stages, ", microbatches, " microbatches"));
        fn(schedule);
      }
    }
  }
}

TEST(PipelineSchedule, AllComeToAnEnd) {
  for_all([](const PipelineSchedule& schedule) {
    const PipelineTimeline timeline = schedule.simulate();
    std::set<std::tuple<PipelineOp, int, int>> done;
    for (const auto& stage : timeline.stages) {
      for (std::size_t i = 0; i < stage.size(); ++i) {
        EXPECT_TRUE(done.emplace(stage[i].action.op, stage[i].action.microbatch, stage[i].action.chunk).second);
        EXPECT_GE(stage[i].begin, i == 0 ? 0.0 : stage[i - 1].end);
      }
    }
    const auto work = static_cast<std::size_t>(schedule.microbatches() * schedule.num_chunks());
    EXPECT_EQ(done.size(), work * (schedule.name() == "zero_bubble_h1" ? 3 : 2));
    EXPECT_GE(timeline.bubble, -1e-12);
    EXPECT_LT(timeline.bubble, 1.0);
  });
}

// What an action needs has ended when it begins, on whichever stage it is.
TEST(PipelineSchedule, ActionsComeAfterWhatTheyNeed) {
  for_all([](const PipelineSchedule& schedule) {
    constexpr PipelineCosts kCosts{.forward = 2.0, .backward = 3.0, .weight = 1.5, .message = 0.25};
    std::map<std::tuple<PipelineOp, int, int>, PipelineSpan> spans;
    for (const auto& stage : schedule.simulate(kCosts).stages) {
      for (const PipelineSpan& span : stage) spans[{span.action.op, span.action.microbatch, span.action.chunk}] = span;
    }
    const double message = schedule.num_stages() == 1 ? 0.0 : kCosts.message;
    for (const auto& [key, span] : spans) {
      const auto& [op, microbatch, chunk] = key;
      const auto after = [&, m = microbatch](PipelineOp before, int of, double later) {
        EXPECT_GE(span.begin, spans.at({before, m, of}).end + later) << span.action.to_string();
      };
      if (op == PipelineOp::kForward && chunk > 0) after(op, chunk - 1, message);
      if (op == PipelineOp::kBackward) after(PipelineOp::kForward, chunk, 0.0);
      if (op == PipelineOp::kBackward && chunk + 1 < schedule.num_chunks()) after(op, chunk + 1, message);
      if (op == PipelineOp::kWeight) after(PipelineOp::kBackward, chunk, 0.0);
    }
  });
}

// The formulas of the papers, in units of a forward; a backward takes two.
TEST(PipelineSchedule, BubblesAreThoseOfThePapers) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int microbatches = stages; microbatches <= 3 * stages; ++microbatches) {
      const double s = stages - 1, m = microbatches;
      const auto bubble = [&](const PipelineScheduleOptions& options) {
        return make_schedule(options, stages, microbatches).simulate().bubble;
      };
      EXPECT_NEAR(bubble(ScheduleGPipe{}), s / (m + s), 1e-12);
      EXPECT_NEAR(bubble(Schedule1F1B{}), s / (m + s), 1e-12);
      EXPECT_NEAR(bubble(ScheduleZeroBubbleH1{}), s / (3 * m + s), 1e-12);
      for (int chunks = 1; chunks <= 4 && microbatches % stages == 0; ++chunks) {
        EXPECT_NEAR(bubble(ScheduleInterleaved{.chunks = chunks}), s / (chunks * m + s), 1e-12);
      }
    }
  }
}

TEST(PipelineSchedule, KeepsAsManyMicrobatchesAsThePapersSay) {
  const auto alive = [](const PipelineScheduleOptions& options) {
    return make_schedule(options, 4, 9).simulate().most_alive;
  };
  EXPECT_THAT(alive(ScheduleGPipe{}), ElementsAre(9, 9, 9, 9));
  EXPECT_THAT(alive(Schedule1F1B{}), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(alive(ScheduleZeroBubbleH1{}), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(make_schedule(ScheduleInterleaved{.chunks = 2}, 4, 8).simulate().most_alive, ElementsAre(11, 9, 7, 5));
}

TEST(PipelineSchedule, IsDrawn) {
  EXPECT_EQ(make_schedule(Schedule1F1B{.microbatches = 3}, 2).simulate().draw(),
            "stage 0: F0 F1 .  .  B0 -- F2 B1 -- .  B2 --\n"
            "stage 1: .  F0 B0 -- F1 B1 -- F2 B2 -- .  .\n");
  EXPECT_EQ(make_schedule(ScheduleZeroBubbleH1{.microbatches = 3}, 2).simulate().draw(),
            "stage 0: F0 F1 .  B0 W0 F2 B1 W1 B2 W2\n"
            "stage 1: .  F0 B0 F1 B1 W0 F2 B2 W1 W2\n");
}

// docs/parallelism.md has these lines.
PipelineSchedule sample() {
  const ScheduleOfOnesOwn own{.microbatches = 4, .make = [](int stages, int microbatches) {
                                std::vector<std::vector<PipelineAction>> work(static_cast<std::size_t>(stages));
                                for (int stage = 0; stage < stages; ++stage) {
                                  for (int m = 0; m < microbatches; ++m) {
                                    work[static_cast<std::size_t>(stage)].push_back({PipelineOp::kForward, m, stage});
                                    work[static_cast<std::size_t>(stage)].push_back({PipelineOp::kBackward, m, stage});
                                  }
                                }
                                return PipelineSchedule::of_work("one_by_one", microbatches, 1, work);
                              }};
  return make_schedule(own, /*stages=*/2);
}

TEST(PipelineSchedule, OfOnesOwn) {
  const PipelineSchedule schedule = sample();
  EXPECT_EQ(schedule.stages()[0].size(), 4u * 4u);
  EXPECT_NEAR(schedule.simulate().bubble, 0.5, 1e-12);
  EXPECT_THAT(error_of<InvalidArgument>([] { make_schedule(ScheduleOfOnesOwn{}, 2); }), HasSubstr("is empty"));
  const ScheduleOfOnesOwn other{.make = [](int stages, int) { return make_schedule(Schedule1F1B{}, stages, 3); }};
  EXPECT_THAT(error_of<InvalidArgument>([&] { make_schedule(other, 2); }),
              HasSubstr("3 microbatches, wanted 2, 2 and 8"));
}

std::string error(const std::vector<std::vector<PipelineAction>>& work, int microbatches = 2) {
  return error_of<InvalidArgument>([&] { (void)PipelineSchedule::of_work("own", microbatches, 1, work).simulate(); });
}

TEST(PipelineSchedule, WrongOnesAreNamed) {
  const std::vector<PipelineAction> second = {forward(0, 1), backward(0, 1), forward(1, 1), backward(1, 1)};
  EXPECT_THAT(error({{forward(0, 0), backward(0, 0), forward(1, 0)}, second}),
              HasSubstr("stage 0 lacks the backward of microbatch 1 in chunk 0"));
  EXPECT_THAT(error({{forward(0, 0), forward(0, 0)}, second}),
              HasSubstr("stage 0 has the forward of microbatch 0 in chunk 0 twice"));
  EXPECT_THAT(error({{forward(1, 0)}, second}), HasSubstr("where microbatch 0 is due"));
  EXPECT_THAT(error({{forward(0, 1)}, second}), HasSubstr("in chunk 1, which lies on stage 1"));
  EXPECT_THAT(error({{forward(0, 2)}, second}), HasSubstr("but there are 2 microbatches and 2 chunks"));
  EXPECT_THAT(error({{}, {}}, 0), HasSubstr("0 microbatches, 1 chunks a stage and 2 stages, wanted 1 or more"));
  EXPECT_THAT(error({{forward(0, 0), forward(1, 0), backward(1, 0), backward(0, 0)}, second}),
              ::testing::StartsWith("no error"));
  // The first stage wants the gradient of microbatch 1 before it sends it on; the second one waits for that.
  EXPECT_THAT(
      error({{forward(0, 0), backward(0, 0), forward(1, 0), backward(1, 0)},
             {forward(0, 1), forward(1, 1), backward(1, 1), backward(0, 1)}}),
      HasSubstr("wait for each other: stage 0 at receive gradient of microbatch 0 in chunk 0, stage 1 at receive "
                "input of microbatch 1 in chunk 1"));
  const PipelineAction lone{PipelineOp::kSendOutput, 0, 1};
  EXPECT_THAT(error({{forward(0, 0), backward(0, 0), forward(1, 0), backward(1, 0)},
                     {forward(0, 1), backward(0, 1), lone, forward(1, 1), backward(1, 1)}}),
              HasSubstr("stage 1 has the send output of microbatch 0 in chunk 1, for which there is no other end"));
  EXPECT_THAT(error_of<InvalidArgument>([] { make_schedule(Schedule1F1B{.microbatches = 0}, 2); }),
              HasSubstr("0 microbatches"));
  EXPECT_THAT(error_of<InvalidArgument>([] { (void)PipelineTimeline().draw(0.0); }), HasSubstr("a positive time"));
}

}  // namespace
}  // namespace cohort::pipeline_schedule_test
