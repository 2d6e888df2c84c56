// The slots of an update rule as flat tensors beside the flat parameters.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "optimizer/update_rule.h"
#include "step/flat_parameters.h"

namespace cohort {

// Returns [group][slot], with their initial values, on the device of the group's copy. Half-precision parameters have
// float32 slots.
std::vector<std::vector<torch::Tensor>> make_slots(const FlatParameters& flat, const UpdateRule& rule,
                                                   std::size_t copy);

}  // namespace cohort
