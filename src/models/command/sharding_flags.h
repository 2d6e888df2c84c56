// The flags of the states that replicas share.
#pragma once

#include "cohort/models/strategy_flags.h"
#include "cohort/strategy.h"

namespace cohort {

// InvalidArgument: the stage is not there, or units are spoken of outside of stage 3.
void check_sharding(const StrategyFlags& flags);
// Returns what the flags say.
ShardingOptions sharding_of(const StrategyFlags& flags);
// Adds the flags, in their order.
void describe_sharding(StrategyFlags& flags, ConfigFields& fields);

}  // namespace cohort
