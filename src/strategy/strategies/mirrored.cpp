#include "strategy/strategies/devices.h"

namespace cohort {

namespace {

StrategyPlan mirrored_plan(const MirroredOptions& options) {
  require_one_of("mirrored", options.devices, options.mesh);
  std::vector<std::string> devices = options.devices;
  if (options.mesh) {
    const Topology& topology = batch_topology("mirrored", *options.mesh);
    for (int r = 0; r < topology.size(); ++r) devices.push_back(topology.place(r).device.to_string());
  }
  StrategyPlan plan = local_plan("mirrored", choose_devices("mirrored", devices));
  if (options.mesh) plan.topology = options.mesh->topology();
  plan.exchange = options.exchange;
  plan.sharding = options.sharding;
  return plan;
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(std::make_shared<StrategyCore>(mirrored_plan(options))) {}

}  // namespace cohort
