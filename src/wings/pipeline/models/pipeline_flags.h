// The flags of a pipeline: an axis of stages in --mesh, and how they work.
#pragma once

#include "cohort/parallel/pipeline_strategy.h"
#include "models/command/mesh_makers.h"
#include "models/command/strategy_table.h"

namespace cohort {

// Returns the schedule of the flags. InvalidArgument: there is none of that name, or no such number of microbatches.
PipelineScheduleOptions schedule_of(const StrategyFlags& flags);

FlagsOfWing pipeline_flags();
StageMaker make_stages();

}  // namespace cohort
