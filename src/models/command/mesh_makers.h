// The makers of strategies on meshes, which are extensions.
#pragma once

#include <string>
#include <vector>

#include "base/extension.h"
#include "base/fail.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/models/experiment.h"

namespace cohort {

// Makes the strategies that --mesh asks for.
struct MeshMaker {
  // Sets the layout of the task where the mesh divides parameters, and where its model is cut if it divides layers.
  // Unimplemented: the task has none.
  void (*take_layout)(StrategyFlags& flags, const Task& task);
  // Returns the strategy on the mesh; `devices` are those that --num_replicas and --num_gpus ask for.
  Strategy (*make)(const StrategyFlags& flags, const std::vector<std::string>& devices,
                   const ExchangeOptions& exchange);
  // Does so over the workers of the environment's cluster, each of which has these devices.
  Strategy (*make_of_workers)(const StrategyFlags& flags, const std::vector<std::string>& devices,
                              const ExchangeOptions& exchange);
};

// Makes the strategies of meshes with an axis of stages, for the maker of meshes.
struct StageMaker {
  // Sets where the task cuts its model, and the number of stages. Unimplemented: it does not say. InvalidArgument: the
  // model has not so many parts.
  void (*take_cut)(StrategyFlags& flags, const Task& task, const DeviceMesh& mesh);
  Strategy (*make)(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange);
  // Does so on a mesh whose devices are those of the workers of a cluster.
  Strategy (*make_of_workers)(const StrategyFlags& flags, const DeviceMesh& mesh, const ExchangeOptions& exchange,
                              const ClusterOptions& members);
  // Fails with InvalidArgument if a flag of stages is set, because the mesh has none.
  void (*refuse)(const StrategyFlags& flags);
};

// Unimplemented: this build has no meshes.
inline const MeshMaker& mesh_maker(const StrategyFlags& flags) {
  if (!extensions<MeshMaker>().empty()) return extensions<MeshMaker>().front();
  fail_without("mesh", "[train] --mesh=", flags.mesh);
}

}  // namespace cohort
