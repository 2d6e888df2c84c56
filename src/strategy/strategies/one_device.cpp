#include "strategy/strategies/devices.h"

namespace cohort {

OneDeviceStrategy::OneDeviceStrategy(const std::string& device)
    : Strategy(std::make_shared<StrategyCore>(local_plan("one_device", {find_logical_device(device)}))) {}

}  // namespace cohort
