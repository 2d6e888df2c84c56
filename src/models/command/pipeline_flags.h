// The flags of a pipeline: an axis of stages in --mesh, and how they work.
#pragma once

#include "cohort/cluster/multi_worker_mesh.h"
#include "cohort/models/experiment.h"
#include "cohort/parallel/pipeline_strategy.h"

namespace cohort {

// Returns whether an axis of the mesh divides layers.
bool has_stages(const DeviceMesh& mesh);

// Fails with InvalidArgument if a flag of a pipeline is set and the mesh, if there is one, has no axis of stages.
void check_pipeline(const StrategyFlags& flags);

// Returns the schedule of the flags. InvalidArgument: there is none of that name, or no such number of microbatches.
PipelineScheduleOptions schedule_of(const StrategyFlags& flags);

// Sets where the task cuts its model, and the number of stages. Unimplemented: it does not say. InvalidArgument: the
// model has not so many parts.
void take_cut(StrategyFlags& flags, const Task& task, const DeviceMesh& mesh);

// Returns the strategy of a mesh with an axis of stages.
Strategy make_pipeline(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange);
// Returns that of a mesh whose devices are those of the workers of a cluster.
Strategy make_pipeline_of_workers(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange,
                                  const ClusterOptions& members);

// Adds the flags.
void describe_pipeline(StrategyFlags& flags, ConfigFields& fields);

}  // namespace cohort
