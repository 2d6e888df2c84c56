// Checks the options of this wing.
#pragma once

#include "strategy/plan_checks.h"

namespace cohort {

// Throws InvalidArgument if options of power_sgd or of local_sgd are out of range, or have no meaning.
void check_comm_hook_options(const StrategyPlan& plan);

}  // namespace cohort
