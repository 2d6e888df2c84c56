#include "strategy/strategies/devices.h"

namespace cohort {

DefaultStrategy::DefaultStrategy()
    : Strategy(std::make_shared<StrategyCore>(local_plan("off", {current_logical_device()}))) {}

}  // namespace cohort
