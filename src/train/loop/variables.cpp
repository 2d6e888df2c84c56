#include "train/loop/variables.h"

#include <algorithm>

#include "base/fail.h"

namespace cohort {

namespace {

bool on_read(const Variable& variable) {
  return variable.options().synchronization == VariableSynchronization::kOnRead;
}

// Returns whether the variable has one value across the replicas.
bool has_value(const Variable& variable) {
  return !on_read(variable) || variable.options().aggregation != VariableAggregation::kNone;
}

}  // namespace

VariableMap variables_of(const Strategy& strategy, const std::string& who) {
  VariableMap variables;
  for (const Variable& variable : strategy.variables()) {
    if (variable.name().empty()) {
      fail<InvalidArgument>(who, ": a variable of the strategy has an empty name; VariableOptions::name gives it the ",
                            "one under which it is saved");
    }
    if (variables.emplace(variable.name(), variable).second) continue;
    fail<InvalidArgument>(who, ": two variables of the strategy have the name \"", variable.name(),
                          "\"; VariableOptions::name gives each its own, under which it is saved");
  }
  return variables;
}

NamedTensors values_of(const VariableMap& variables) {
  NamedTensors values;
  for (const auto& [name, variable] : variables) {
    if (has_value(variable)) values.emplace_back(name, variable.read());
  }
  return values;
}

void load_from_chief(const StrategyCore& core, const VariableMap& variables, const CheckpointData& data,
                     const std::string& who) {
  std::vector<torch::Tensor> values;
  for (const auto& [name, variable] : variables) {
    if (has_value(variable)) values.push_back(variable.components()[0].detach().clone());
  }
  core.on_chief("restore", [&] {
    if (variables.empty()) return;
    const NamedTensors saved = tensors_of(data, kVariablesGroup, who);
    auto value = values.begin();
    for (const auto& entry : variables) {
      const auto& [name, variable] = entry;
      if (!has_value(variable)) continue;
      const auto found =
          std::find_if(saved.begin(), saved.end(), [&](const auto& item) { return item.first == entry.first; });
      if (found == saved.end()) fail<NotFound>(who, ": there is no variable \"", name, "\" in it");
      if (found->second.sizes() != value->sizes()) {
        fail<InvalidArgument>(who, ": the variable \"", name, "\" has shape ", found->second.sizes(), ", wanted ",
                              value->sizes());
      }
      (value++)->copy_(found->second);
    }
  });
  core.broadcast_from_chief(values);
  auto value = values.begin();
  for (const auto& [name, variable] : variables) {
    if (has_value(variable)) variable.assign(*value++);
  }
}

std::vector<torch::Tensor> own_components(const std::vector<Variable>& variables) {
  std::vector<torch::Tensor> values;
  for (const Variable& variable : variables) {
    if (!on_read(variable)) continue;
    for (const torch::Tensor& component : variable.components()) {
      values.push_back(component.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true));
    }
  }
  return values;
}

void set_own_components(const std::vector<Variable>& variables, std::span<const torch::Tensor> values) {
  const torch::NoGradGuard no_grad;
  auto next = values.begin();
  for (const Variable& variable : variables) {
    if (!on_read(variable)) continue;
    for (const torch::Tensor& component : variable.components()) component.detach().copy_(*next++);
  }
}

void require_values(const VariableMap& variables, const std::string& who, const std::string& saved,
                    const std::string& now) {
  for (const auto& [name, variable] : variables) {
    if (has_value(variable)) continue;
    fail<InvalidArgument>(who, ": the variable \"", name, "\" has no aggregation, and was saved with ", saved,
                          " replicas; now there are ", now);
  }
}

}  // namespace cohort
