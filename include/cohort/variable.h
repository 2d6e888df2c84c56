// Variable: one conceptual tensor that a strategy keeps on its replicas (tf.Variable under a strategy).
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cohort/communicator.h"
#include "cohort/values.h"

namespace cohort {

class Strategy;

// The moment at which the copies are made equal.
enum class VariableSynchronization {
  kAuto,     // kOnWrite
  kNone,     // refused: InvalidArgument
  kOnWrite,  // all copies are equal at all times; a write from the replicas is aggregated first
  kOnRead,   // replicas write their own copy without communication; reading across replicas aggregates
};

// The way in which the replicas' values become one.
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

struct VariableOptions {
  // Replica 0 keeps the name, replica i gets "<name>/replica_i".
  std::string name = "Variable";
  VariableSynchronization synchronization =
      VariableSynchronization::kAuto;  // the moment at which the copies are made equal
  // The way in which the replicas' values become one when they are written (kOnWrite) or read (kOnRead).
  VariableAggregation aggregation = VariableAggregation::kNone;
  // Says whether gradients are kept for it. Unset: true, and false for kOnRead, where replicas have their own.
  std::optional<bool> trainable = std::nullopt;
};

// A handle: copies refer to the same variable. Made by Strategy::variable(). Called inside run() it means this
// replica's component, outside (cross-replica context) the whole. Replicas may use their own components in parallel;
// calls in cross-replica context come from one thread at a time.
class Variable {
 public:
  Variable() = default;

  // Returns the value. In a replica it is the replica's component (an alias, so autograd reaches it). Across replicas
  // it is for kOnWrite a copy of the first component, for kOnRead the aggregate (sum, mean or first; kNone:
  // FailedPrecondition).
  torch::Tensor read() const;

  // Called in a replica for a kOnWrite variable, aggregates the values of all replicas and sets every component, in
  // a collective of all. kOnRead, and no aggregation: sets the own component; if the replicas share one, without an
  // aggregation: InvalidArgument. Across replicas: gives every component the value (kOnRead with kSum: value /
  // replicas, so that the sum is the value).
  void assign(const torch::Tensor& value) const;

  // Adds as assign() sets. InvalidArgument: it is called across replicas, for kOnRead with kSum.
  void assign_add(const torch::Tensor& delta) const;
  // Subtracts as assign_add() adds.
  void assign_sub(const torch::Tensor& delta) const;

  // Applies fn to every component, on its device, without any exchange (StrategyExtended.update). Cross-replica only.
  void update(const std::function<void(torch::Tensor& component)>& fn) const;

  // Returns the name that the variable was made with.
  const std::string& name() const;
  // Returns the options that the variable was made with.
  const VariableOptions& options() const;
  // Returns the components, in local replica order. Under central storage all are the same tensor.
  const PerReplica<torch::Tensor>& components() const;

 private:
  friend class Strategy;
  struct State;
  explicit Variable(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace cohort
