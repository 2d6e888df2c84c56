// What a strategy's plan has to be like, whatever the strategy.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "strategy/core.h"

namespace cohort {

// Throws InvalidArgument, with the option's name, if the plan's replicas are not those of its topology, or its options
// are out of range, contradict each other or would have no effect. Errors of combinations.h.
void require_possible(const StrategyPlan& plan);

// Checks the options of compressions and of local steps. An extension.
struct CommHookOptions {
  void (*check)(const StrategyPlan& plan);
};

// Fails unless there is a part in each dimension, and as many in all as cores. "option" is the name of the setting.
void check_partition_dims(std::string_view option, const std::vector<int64_t>& dims, int cores);

}  // namespace cohort
