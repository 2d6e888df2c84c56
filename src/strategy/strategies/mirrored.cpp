#include "strategy/strategies/devices.h"

namespace cohort {

namespace {

StrategyPlan mirrored_plan(const MirroredOptions& options) {
  StrategyPlan plan = local_plan("mirrored", choose_devices("mirrored", options.devices));
  plan.exchange = options.exchange;
  return plan;
}

}  // namespace

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(std::make_shared<StrategyCore>(mirrored_plan(options))) {}

}  // namespace cohort
