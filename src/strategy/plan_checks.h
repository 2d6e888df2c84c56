// What a strategy's plan has to be like, whatever the strategy.
#pragma once

#include "strategy/core.h"

namespace cohort {

// Throws InvalidArgument, with the option's name, if the plan's replicas are not those of its topology, or its options
// are out of range, contradict each other or would have no effect.
void require_possible(const StrategyPlan& plan);

}  // namespace cohort
