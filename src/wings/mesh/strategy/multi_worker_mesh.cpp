#include "cohort/cluster/multi_worker_mesh.h"

#include <c10/util/StringUtil.h>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "strategy/strategies/workers.h"
#include "wings/mesh/strategy/mesh_plan.h"

namespace cohort {

namespace {

constexpr const char* kMeshName = "multi_worker_mesh";

// Says how inputs are divided.
std::string text_of(const StrategyPlan& plan) {
  return c10::str("[", c10::Join(",", plan.cores.train_dims), "] and [", c10::Join(",", plan.cores.eval_dims), "]",
                  plan.extras.of<MeshExtras>().attention == SequenceAttention::kUlysses ? " by heads" : "");
}

StrategyPlan plan_of(const DeviceMesh& mesh, const MeshOptions& options, const ClusterOptions& members) {
  if (members.communication.overlap.value_or(false)) {
    fail<InvalidArgument>("[strategy] ", kMeshName,
                          ": communication.overlap is true, but the gradients of a mesh leave ", "after backward");
  }
  if (members.communication.bytes_per_pack != 0) {
    fail<InvalidArgument>("[strategy] ", kMeshName, ": communication.bytes_per_pack is ",
                          members.communication.bytes_per_pack, "; the messages of a mesh are those of exchange");
  }
  require_known(members.communication);
  const ClusterResolverPtr resolver = members.resolver ? members.resolver : resolve_cluster();
  const std::optional<TaskId> task = resolver->task();
  const ClusterSpec cluster = training_cluster(kMeshName, resolver->cluster_spec(), task);
  StrategyPlan plan = mesh_plan(kMeshName, mesh, options, devices_in(kMeshName, mesh, task));
  plan.expects_workers = true;
  plan.topology = mesh.topology();
  divide_inputs(plan, mesh, options);
  if (cluster.empty()) {
    log().info("[strategy] {}: one worker, with the devices of this process", kMeshName);
    for (int r = 0; r < mesh.size(); ++r) {
      if (mesh.topology().place(r).process == 0) continue;
      fail<InvalidArgument>("[strategy] ", kMeshName, ": ", mesh.topology().place(r).device.to_string(),
                            " of the mesh (", mesh.to_string(),
                            ") belongs to another task, and there is no cluster with it");
    }
    return plan;
  }
  WorkerGroupOptions group{.cluster = cluster,
                           .task = *task,
                           .devices = plan.devices,
                           .resolver = std::string(resolver->name()),
                           .communication = members.communication,
                           .membership = members.membership,
                           .strategy = kMeshName,
                           .alike = {{"mesh", agreed_text(mesh)},
                                     {"layout", agreed_text(options.layout)},
                                     {"sequence_parallel", options.sequence_parallel ? "true" : "false"},
                                     {"exchange", agreed_text(options.exchange)},
                                     {"sharding", agreed_text(options.sharding)},
                                     {"parts", text_of(plan)}}};
  group.communication.overlap = false;
  join_workers(plan, group);
  take_mesh(plan, mesh);
  return plan;
}

}  // namespace

// The replicas of a line draw the same numbers, also those of several workers.
MultiWorkerMeshStrategy::MultiWorkerMeshStrategy(const DeviceMesh& mesh, const MeshOptions& options,
                                                 const ClusterOptions& cluster)
    : Strategy(std::make_shared<StrategyCore>(plan_of(mesh, options, cluster))) {
  take_seed_of_chief(*Access::core(*this));
}

int MultiWorkerMeshStrategy::num_workers() const {
  return Access::core(*this)->num_workers();
}

int MultiWorkerMeshStrategy::worker_rank() const {
  return Access::core(*this)->worker_rank();
}

std::shared_ptr<Membership> MultiWorkerMeshStrategy::membership() const {
  return Access::core(*this)->workers().membership();
}

}  // namespace cohort
