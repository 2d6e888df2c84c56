#include "strategy/core.h"

namespace cohort {

OneDeviceStrategy::OneDeviceStrategy(const std::string& device)
    : Strategy(std::make_shared<StrategyCore>(
          StrategyPlan{.name = "one_device", .devices = {find_logical_device(device)}, .rebatch_input = false})) {}

}  // namespace cohort
