// Pipeline: the runner of a replica that is a line of stages. A thread a stage takes the actions of the schedule one
// after the other, and a thread a microbatch is in the function that run() was given. Only one of the two works at a
// time: a stage's forward lets the function go on until it ends a chunk, and waits for it.
#pragma once

#include <string>
#include <vector>

#include "cohort/parallel/pipeline_strategy.h"
#include "strategy/replica_runner.h"

namespace cohort {

// The names of spans in a trace: a stage's wait for what another one sends, and a replica's step, without the update.
inline constexpr const char* kStageWait = "wait for another stage";
inline constexpr const char* kPipelineStep = "step of a pipeline";

// The options of a pipeline that its runners need.
struct PipelineSetup {
  int stages = 1;
  // Where the stages of a line lie with several processes: those of this one, and the axis of the topology along which
  // they do. Otherwise all are here.
  int stages_here = 0;
  int first_stage = 0;
  std::string axis = {};
  PipelineScheduleOptions schedule = Schedule1F1B{};
  std::vector<std::string> cut = {};
  int most_alive = 0;
};

// Makes the schedule for a number of microbatches, checked for its end and its memory.
PipelineSchedule checked_schedule(const PipelineSetup& setup, int microbatches);

// Returns the maker of the runners.
MakeRunner pipelines(const PipelineSetup& setup);

}  // namespace cohort
