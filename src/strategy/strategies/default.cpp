#include "strategy/core.h"
#include "strategy/strategies/devices.h"

namespace cohort {

namespace {

StrategyPlan default_plan(const LogicalDevice& device) {
  return {.name = "off", .topology = local_topology({device}), .devices = {device}, .rebatch_input = false};
}

}  // namespace

DefaultStrategy::DefaultStrategy() : Strategy(std::make_shared<StrategyCore>(default_plan(current_logical_device()))) {}

}  // namespace cohort
