// The slots of an update rule as flat tensors beside the flat parameters, and the masters of half-precision parameters
// behind them.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cohort/optimizer.h"
#include "step/flat_parameters.h"

namespace cohort {

// The name of the slot that is a parameter in float32; see Optimizer::master_weights(). It is zero until the first
// update takes it from the parameter.
inline constexpr const char* kMaster = "master";

struct SlotKind {
  std::string name;
  double initial = 0.0;
};

// Returns the slots of parameters of the dtype: the rule's, then the master if they have one.
std::vector<SlotKind> slots_for(const Optimizer& rule, torch::ScalarType dtype);
// Returns the dtype of these: float32 for half-precision parameters, which are updated in it.
torch::ScalarType slot_dtype(torch::ScalarType dtype);
bool is_half(torch::ScalarType dtype);

// Returns [group][slot], with their initial values, on the device of the group's copy.
std::vector<std::vector<torch::Tensor>> make_slots(const FlatParameters& flat, const Optimizer& rule, std::size_t copy);

}  // namespace cohort
