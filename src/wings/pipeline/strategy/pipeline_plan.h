// The part of a plan that pipelines of one process and of several have in common.
#pragma once

#include <string>
#include <vector>

#include "cohort/parallel/pipeline_strategy.h"
#include "strategy/core.h"
#include "wings/pipeline/strategy/pipeline.h"

namespace cohort {

// The extras of a pipeline's plan.
struct PipelineExtras {
  int chunks = 1;                     // the parts in which a replica runs a model
  std::vector<std::string> cut = {};  // the names of the places where the later ones begin
};

// Returns the mesh's axis of stages. InvalidArgument, Unimplemented: see PipelineOptions::mesh.
const Axis& stages_of(const DeviceMesh& mesh);

// Fails with Unimplemented unless the stages that this process has of each line, so many that follow each other, are on
// CPUs or on one and the same GPU.
void require_lines_here(const std::vector<LogicalDevice>& devices, std::size_t stages);

// Says in a plan which parameters are cut along axes of the mesh. Errors: see PipelineOptions::layout.
void take_layout(StrategyPlan& plan, const PipelineOptions& options);

// Returns the plan of a pipeline whose stages are all in this process. Errors: see PipelineOptions.
StrategyPlan pipeline_plan(const PipelineOptions& options);

// Says in a plan how replicas run the stages of the setup, of which it takes the schedule, the cut and most_alive from
// the options. Errors: see PipelineOptions.
void take_schedule(StrategyPlan& plan, const PipelineOptions& options, PipelineSetup setup);

}  // namespace cohort
