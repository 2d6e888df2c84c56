// The part of a plan that pipelines of one process and of several have in common.
#pragma once

#include <string>
#include <vector>

#include "cohort/parallel/pipeline_strategy.h"
#include "strategy/strategies/preset.h"
#include "wings/pipeline/strategy/pipeline.h"

namespace cohort {

// The extras of a pipeline's plan.
struct PipelineExtras {
  int chunks = 1;                     // the parts in which a replica runs a model
  std::vector<std::string> cut = {};  // the names of the places where the later ones begin
};

// Returns the mesh's axis of stages. InvalidArgument, Unimplemented: see PipelineOptions::mesh.
const Axis& stages_of(const DeviceMesh& mesh);

// Returns the preset of a pipeline, whose replicas are runs of stages that one process has of a line. InvalidArgument,
// Unimplemented: see PipelineOptions::mesh.
StrategyPreset pipeline_preset(const std::string& name, const PipelineOptions& options);
// Returns the plan of such a preset, before the processes have met. Errors: see PipelineOptions.
StrategyPlan pipeline_plan(const StrategyPreset& preset, const PipelineOptions& options);
// Says in the plan, when they have, how replicas run their stages. Errors: see PipelineOptions.
void take_stages(StrategyPlan& plan, const StrategyPreset& preset, const PipelineOptions& options);

}  // namespace cohort
