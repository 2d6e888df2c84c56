// From the runtime's configuration to a strategy.
#pragma once

#include "cohort/experiment.h"
#include "cohort/strategy.h"

namespace cohort::cli {

// Whether the environment's cluster has this process as its evaluator, which trains nothing.
bool is_evaluator(const RuntimeConfig& runtime);

// Every wrong combination: InvalidArgument that names the fields and what they were.
Strategy make_strategy(const RuntimeConfig& runtime);

}  // namespace cohort::cli
