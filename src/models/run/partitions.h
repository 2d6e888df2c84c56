// The division of a task's inputs among the cores of a replica, as a mode of a run wants it.
#pragma once

#include <string>

#include "cohort/models/experiment.h"

namespace cohort {

// Sets what the strategy of a run in this mode divides, as the task says for training and evaluation. In a mode that
// does both, one that is empty is as the other; InvalidArgument: they have different numbers of parts.
void divide_inputs(StrategyFlags& flags, const Task& task, const std::string& mode);

// Returns the parts for an input as a model takes it from those of a configuration: [batch, height, width, channels],
// as Model Garden has them, or [height, width]. "planes": the input has no dimension of channels. InvalidArgument names
// the key.
std::vector<int64_t> partition_dims_of(const std::string& key, const std::vector<int64_t>& given, bool planes);

}  // namespace cohort
