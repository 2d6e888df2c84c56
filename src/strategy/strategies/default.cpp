#include "strategy/core.h"

namespace cohort {

DefaultStrategy::DefaultStrategy()
    : Strategy(std::make_shared<StrategyCore>(
          StrategyPlan{.name = "off", .devices = {current_logical_device()}, .rebatch_input = false})) {}

}  // namespace cohort
