// Variables in checkpoints: one value of each under its name, and the components that replicas keep for themselves.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "cohort/strategy.h"
#include "train/loop/parts.h"

namespace cohort {

using VariableMap = std::map<std::string, Variable>;

// The group of a checkpoint's tensors that holds the variables' values.
inline constexpr const char* kVariablesGroup = "variables";

// Returns the variables that a strategy has made and somebody still uses, by their names. InvalidArgument, which `who`
// opens: one has an empty name, or two have the same.
VariableMap variables_of(const Strategy& strategy, const std::string& who);

// Returns one value a variable, but for those that have none across the replicas. Collective of all workers.
NamedTensors values_of(const VariableMap& variables);

// Gives the variables of all workers the values that are saved on the chief, where alone `data` is read. Collective.
// NotFound, InvalidArgument: a variable is not in it, or has another shape.
void load_from_chief(const StrategyCore& core, const VariableMap& variables, const CheckpointData& data,
                     const std::string& who);

// Returns copies of the components that the local replicas keep for themselves.
std::vector<torch::Tensor> own_components(const std::vector<Variable>& variables);
// Sets them to what own_components() of the same variables returned.
void set_own_components(const std::vector<Variable>& variables, std::span<const torch::Tensor> values);
// InvalidArgument: a variable has components alone, which do not fit other replicas than the `saved` ones.
void require_values(const VariableMap& variables, const std::string& who, const std::string& saved,
                    const std::string& now);

}  // namespace cohort
