#include "strategy/core.h"
#include "strategy/strategies/devices.h"

namespace cohort {

namespace {

StrategyPlan mirrored_plan(const MirroredOptions& options) {
  StrategyPlan plan{.name = "mirrored", .exchange = options.exchange};
  plan.devices = choose_devices(plan.name, options.devices);
  plan.topology = local_topology(plan.devices);
  return plan;
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(std::make_shared<StrategyCore>(mirrored_plan(options))) {}

}  // namespace cohort
