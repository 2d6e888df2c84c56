// A strategy on a device of XLA that is not here: training steps are recorded and handed to a runner.
#pragma once

#include <memory>

#include "cohort/strategy.h"
#include "wings/xla/record/runner.h"

namespace cohort {

// Makes a strategy with one replica, on a device xla:0 whose programs the runner gets; the inputs of models are divided
// in these parts, as XlaStrategyOptions::input_partition_dims has them. FailedPrecondition: devices of XLA are open in
// this process, or a backward came before.
Strategy absent_strategy(std::shared_ptr<record::GraphRunner> runner, const std::vector<int64_t>& partition_dims = {});

}  // namespace cohort
