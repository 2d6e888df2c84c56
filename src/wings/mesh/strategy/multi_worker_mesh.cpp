#include "cohort/cluster/multi_worker_mesh.h"

#include <c10/util/StringUtil.h>

#include "wings/mesh/strategy/mesh_plan.h"

namespace cohort {

namespace {

// Says how inputs are divided.
std::string text_of(const StrategyPlan& plan) {
  return c10::str("[", c10::Join(",", plan.cores.train_dims), "] and [", c10::Join(",", plan.cores.eval_dims), "]",
                  plan.extras.of<MeshExtras>().attention == SequenceAttention::kUlysses ? " by heads" : "");
}

JoinedCore joined(const DeviceMesh& mesh, const MeshOptions& options, const ClusterOptions& cluster) {
  StrategyPreset preset = mesh_preset("multi_worker_mesh", mesh, options);
  preset.cluster = resolved(cluster);
  leave_after_backward(preset.name, *preset.cluster);
  StrategyPlan plan = mesh_plan(preset, options);
  preset.alike = {{"layout", agreed_text(options.layout)},
                  {"sequence_parallel", options.sequence_parallel ? "true" : "false"},
                  {"exchange", agreed_text(options.exchange)},
                  {"parts", text_of(plan)}};
  enter_cluster(plan, preset);
  return joined_core(std::move(plan), preset);
}

}  // namespace

MultiWorkerMeshStrategy::MultiWorkerMeshStrategy(const DeviceMesh& mesh, const MeshOptions& options,
                                                 const ClusterOptions& cluster)
    : MultiWorkerStrategy(joined(mesh, options, cluster)) {}

}  // namespace cohort
