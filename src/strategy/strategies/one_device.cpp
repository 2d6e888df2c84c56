#include "strategy/core.h"
#include "strategy/strategies/devices.h"

namespace cohort {

namespace {

StrategyPlan one_device_plan(const LogicalDevice& device) {
  return {.name = "one_device", .topology = local_topology({device}), .devices = {device}, .rebatch_input = false};
}

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(const std::string& device)
    : Strategy(std::make_shared<StrategyCore>(one_device_plan(find_logical_device(device)))) {}

}  // namespace cohort
