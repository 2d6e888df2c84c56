// VariableHome: the holder of a variable's value besides the replicas' components of it. Usually there is none; with
// parameter servers it is other processes, which every reading and writing has to reach.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string_view>

#include "cohort/replica.h"
#include "cohort/values.h"
#include "cohort/variable.h"
#include "device/identity.h"

namespace cohort {

class RemoteVariables;
class StrategyCore;

// A change of a variable's value by another one.
enum class VariableChange { kAssign, kAdd, kSubtract };

// The replicas' components of one variable, and how the replicas' values become one.
struct VariableComponents {
  std::shared_ptr<StrategyCore> core;
  VariableOptions options;
  PerReplica<torch::Tensor> values;

  bool on_read() const { return options.synchronization == VariableSynchronization::kOnRead; }
  bool sums() const { return options.aggregation == VariableAggregation::kSum; }

  // Applies fn once to each storage.
  template <typename Fn>
  void each(const Fn& fn) const {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0 && same_memory(values[i], values[0])) continue;
      torch::Tensor component = values[i].detach();
      fn(component);
    }
  }

  // Returns the one value that the replicas' values become, the same on all. A collective of all replicas.
  // InvalidArgument: there are several, and the variable has no aggregation; "method" is what needs it.
  torch::Tensor aggregate(Replica& replica, const torch::Tensor& value, std::string_view method) const;
};

class VariableHome {
 public:
  virtual ~VariableHome() = default;

  // Gives the components the newest value; in cross-replica context.
  virtual void refresh() = 0;
  // Changes the value: from inside a replica, where all replicas call it, or with null in cross-replica context.
  virtual void write(Replica* inside, const torch::Tensor& value, VariableChange change, std::string_view method) = 0;
};

// Makes the home of a variable that has nothing but its components.
std::unique_ptr<VariableHome> make_home_here(std::shared_ptr<VariableComponents> components);
// Makes the home of a variable that other processes keep, and declares it to them.
std::unique_ptr<VariableHome> make_home_elsewhere(std::shared_ptr<VariableComponents> components,
                                                  RemoteVariables& remote, const torch::Tensor& value);

}  // namespace cohort
