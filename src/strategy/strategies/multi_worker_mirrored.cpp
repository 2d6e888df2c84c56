#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "collective/gradient_wire.h"
#include "strategy/strategies/devices.h"
#include "strategy/strategies/workers.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr const char* kName = "multi_worker_mirrored";

// Says what workers have to agree on beside their devices.
std::string sharding_of(const MultiWorkerOptions& options) {
  return agreed_text(options.sharding) + ", mesh " + (options.mesh ? options.mesh->to_string() : "none");
}

std::string local_sgd_of(const MultiWorkerOptions& options) {
  const LocalSgdOptions& local = options.local_sgd;
  return c10::str("every ", local.sync_every, " updates after ", local.start_iter, ", rate ", local.outer_learning_rate,
                  ", momentum ", local.outer_momentum, local.outer_nesterov ? "" : " without Nesterov's");
}

// Returns why gradients leave after backward whatever communication.overlap says, empty if they need not.
std::string leave_after_backward(const MultiWorkerOptions& options, const StrategyPlan& plan) {
  const bool on_gpus = !plan.devices.front().torch_device.is_cpu();
  if (GradientWire(options.exchange.gradient_compression).has_hook()) {
    return "where gradient_compression is " + options.exchange.gradient_compression;
  }
  if (options.local_sgd.sync_every > 0) return "under local_sgd";
  if (options.sharding.stage == 1) return "with sharding.stage 1";
  if (options.sharding.stage > 1 && on_gpus && options.communication.implementation != "ring") {
    return "with shared states on GPUs, unless communication.implementation is ring";
  }
  return "";
}

StrategyPlan plan(const ClusterResolver& resolver, const MultiWorkerOptions& options) {
  const std::optional<TaskId> task = resolver.task();
  require_one_of(kName, options.devices, options.mesh);
  if (options.mesh) (void)batch_topology(kName, *options.mesh);
  const std::vector<std::string> devices = options.mesh ? devices_in(kName, *options.mesh, task) : options.devices;
  StrategyPlan plan = local_plan(kName, choose_worker_devices(kName, devices, local_place()));
  plan.exchange = options.exchange;
  plan.sharding = options.sharding;
  plan.local_sgd = options.local_sgd;
  plan.expects_workers = true;
  require_known(options.communication);
  const std::string after_backward = leave_after_backward(options, plan);
  if (options.communication.overlap.value_or(false) && !after_backward.empty()) {
    fail<InvalidArgument>("[strategy] ", kName, ": communication.overlap is true, but gradients leave after backward ",
                          after_backward);
  }
  if (options.communication.bytes_per_pack > 0 && options.exchange.bytes_per_pack > 0) {
    fail<InvalidArgument>("[strategy] ", kName, ": communication.bytes_per_pack is ",
                          options.communication.bytes_per_pack, " and exchange.bytes_per_pack ",
                          options.exchange.bytes_per_pack, "; give one of them");
  }
  if (options.communication.bytes_per_pack > 0) plan.exchange.bytes_per_pack = options.communication.bytes_per_pack;
  const ClusterSpec cluster = training_cluster(kName, resolver.cluster_spec(), task);
  if (cluster.empty()) {
    log().info("[strategy] {}: one worker, with the devices of this process", kName);
    if (options.mesh) plan.topology = batch_topology(kName, *options.mesh);
    return plan;
  }
  join_workers(plan, {.cluster = cluster,
                      .task = *task,
                      .devices = plan.devices,
                      .resolver = std::string(resolver.name()),
                      .communication = options.communication,
                      .membership = options.membership,
                      .alike = {{"sharding", sharding_of(options)},
                                {"local sgd", local_sgd_of(options)},
                                {"gradient compression", compression_of(options.exchange)}}});
  if (options.mesh) take_mesh(plan, *options.mesh);
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
