#include "base/access.h"
#include "base/fail.h"
#include "cohort/cluster/multi_worker_strategy.h"
#include "collective/gradient_wire.h"
#include "strategy/strategies/preset.h"
#include "strategy/worker_group.h"

namespace cohort {

namespace {

constexpr const char* kName = "multi_worker_mirrored";

// Says what workers have to agree on.
std::string local_sgd_of(const MultiWorkerOptions& options) {
  const LocalSgdOptions& local = options.local_sgd;
  return c10::str("every ", local.sync_every, " updates after ", local.start_iter, ", rate ", local.outer_learning_rate,
                  ", momentum ", local.outer_momentum, local.outer_nesterov ? "" : " without Nesterov's");
}

// Returns why gradients leave after backward whatever communication.overlap says, empty if they need not.
std::string why_after_backward(const MultiWorkerOptions& options, const StrategyPlan& plan) {
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

void take_communication(StrategyPlan& plan, const MultiWorkerOptions& options) {
  const CommunicationOptions& communication = options.communication;
  const std::string after_backward = why_after_backward(options, plan);
  if (communication.overlap.value_or(false) && !after_backward.empty()) {
    fail<InvalidArgument>("[strategy] ", kName, ": communication.overlap is true, but gradients leave after backward ",
                          after_backward);
  }
  if (communication.bytes_per_pack > 0 && options.exchange.bytes_per_pack > 0) {
    fail<InvalidArgument>("[strategy] ", kName, ": communication.bytes_per_pack is ", communication.bytes_per_pack,
                          " and exchange.bytes_per_pack ", options.exchange.bytes_per_pack, "; give one of them");
  }
  if (communication.bytes_per_pack > 0) plan.exchange.bytes_per_pack = communication.bytes_per_pack;
}

JoinedCore joined(const MultiWorkerOptions& options) {
  const StrategyPreset preset{
      .name = kName,
      .devices = options.devices,
      .mesh = options.mesh,
      .exchange = options.exchange,
      .sharding = options.sharding,
      .cluster = resolved({options.resolver, options.communication, options.membership}),
      .alike = {{"local sgd", local_sgd_of(options)}, {"gradient compression", compression_of(options.exchange)}}};
  StrategyPlan plan = build_plan(preset);
  plan.local_sgd = options.local_sgd;
  take_communication(plan, options);
  enter_cluster(plan, preset);
  return joined_core(std::move(plan), preset);
}

}  // namespace

MultiWorkerStrategy::MultiWorkerStrategy(JoinedCore joined)
    : Strategy(std::move(joined.first)), resolver_(std::move(joined.second)) {}

int MultiWorkerStrategy::num_workers() const {
  return Access::core(*this)->num_workers();
}

int MultiWorkerStrategy::worker_rank() const {
  return Access::core(*this)->worker_rank();
}

std::shared_ptr<Membership> MultiWorkerStrategy::membership() const {
  return Access::core(*this)->workers().membership();
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const MultiWorkerOptions& options)
    : MultiWorkerStrategy(joined(options)) {}

}  // namespace cohort
