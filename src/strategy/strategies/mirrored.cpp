#include "strategy/core.h"
#include "strategy/strategies/devices.h"

namespace cohort {

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(std::make_shared<StrategyCore>(StrategyPlan{
          .name = "mirrored", .devices = choose_devices("mirrored", options.devices), .exchange = options.exchange})) {}

}  // namespace cohort
