#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "strategy/strategies/devices.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr const char* kName = "multi_worker_mirrored";

StrategyPlan plan(const ClusterResolver& resolver, const MultiWorkerOptions& options) {
  StrategyPlan plan = local_plan(kName, choose_worker_devices(kName, options.devices, local_place()));
  plan.exchange = options.exchange;
  plan.expects_workers = true;
  require_known(options.communication);
  if (options.communication.bytes_per_pack > 0 && options.exchange.bytes_per_pack > 0) {
    fail<InvalidArgument>("[strategy] ", kName, ": communication.bytes_per_pack is ",
                          options.communication.bytes_per_pack, " and exchange.bytes_per_pack ",
                          options.exchange.bytes_per_pack, "; give one of them");
  }
  if (options.communication.bytes_per_pack > 0) plan.exchange.bytes_per_pack = options.communication.bytes_per_pack;
  const std::optional<TaskId> task = resolver.task();
  const ClusterSpec cluster = training_cluster(kName, resolver.cluster_spec(), task);
  if (cluster.empty()) {
    log().info("[strategy] {}: one worker, with the devices of this process", kName);
    return plan;
  }
  // Whoever waits for the replica that speaks to the other workers waits longer than that one does.
  plan.exchange.timeout =
      std::max(plan.exchange.timeout,
               options.communication.timeout + 2 * options.membership.heartbeat_timeout + std::chrono::seconds(30));
  const auto workers = std::make_shared<JoinedWorkers>(WorkerGroupOptions{.cluster = cluster,
                                                                          .task = *task,
                                                                          .devices = plan.devices,
                                                                          .under_mpi = resolver.name() == "mpi",
                                                                          .communication = options.communication,
                                                                          .membership = options.membership});
  plan.topology = Topology::batch(workers->devices());
  plan.workers = workers;
  return plan;
}

ClusterResolverPtr resolver_of(const MultiWorkerOptions& options) {
  return options.resolver ? options.resolver : resolve_cluster();
}

}  // namespace

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const MultiWorkerOptions& options)
    : MultiWorkerMirroredStrategy(resolver_of(options), options) {}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(ClusterResolverPtr resolver, const MultiWorkerOptions& options)
    : Strategy(std::make_shared<StrategyCore>(plan(*resolver, options))), resolver_(std::move(resolver)) {}

int MultiWorkerMirroredStrategy::num_workers() const {
  return Access::core(*this)->num_workers();
}

int MultiWorkerMirroredStrategy::worker_rank() const {
  return Access::core(*this)->worker_rank();
}

std::shared_ptr<Membership> MultiWorkerMirroredStrategy::membership() const {
  return Access::core(*this)->workers().membership();
}

}  // namespace cohort
