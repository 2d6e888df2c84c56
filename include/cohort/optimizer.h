// Optimizers: MirroredOptimizer, which applies an update rule (update_rules.h) under a strategy.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cohort/mirrored.h"
#include "cohort/replica.h"
#include "cohort/update_rules.h"  // IWYU pragma: export

namespace cohort {

struct ExchangeTimeline;  // in exchange_options.h, as is the next
struct StateBytes;
class Step;

// One replica's end of a MirroredOptimizer; made by operator[], used inside run(). All methods are collectives: every
// replica makes the same calls in the same order.
class ReplicaOptimizer {
 public:
  // The library uses this: MirroredOptimizer::operator[] makes these.
  ReplicaOptimizer(Step& step, Replica& replica) : step_(step), replica_(replica) {}

  // Runs backward from a scalar loss, all-reduces the gradients of this optimizer's parameters and updates all copies.
  // The loss is this replica's share of the global mean (Replica::global_mean). Parameters that it does not reach have
  // gradient zero. Gradients of the program's own backward() are added; docs/optimizers.md says when they are not.
  void minimize(const torch::Tensor& loss);

  // Does the same from gradients that the caller computed, in the order of MirroredOptimizer::parameter_names(); an
  // undefined tensor is a zero gradient. With `reduced` the caller has already summed them over the replicas.
  void apply_gradients(std::vector<torch::Tensor> gradients, bool reduced = false);

  // Runs backward only and returns this replica's gradients, not summed.
  std::vector<torch::Tensor> gradients(const torch::Tensor& loss);

 private:
  Step& step_;
  Replica& replica_;
};

// A handle: copies are the same optimizer. Holds the slots, in flat memory, and the step count. Made by
// Strategy::optimizer(); it takes the module's parameters that require gradients at that time and lays them out flat.
class MirroredOptimizer {
 public:
  MirroredOptimizer() = default;
  explicit MirroredOptimizer(std::shared_ptr<Step> step) : step_(std::move(step)) {}

  // Returns the replica's end, for use inside run().
  ReplicaOptimizer operator[](Replica& replica) const { return {*step_, replica}; }
  // Returns whether the handle refers to an optimizer.
  bool defined() const { return step_ != nullptr; }

  // Returns the number of updates made so far. With a loss scale on a device that is not the host it waits for the last
  // step's gradients, which tell whether there was an update.
  int64_t iterations() const;
  // Returns the same without a wait: a step that may turn out to be left out counts until that is known.
  int64_t iterations_begun() const;
  // Returns the rate of the next update.
  double learning_rate() const;
  // Replaces the rate or the schedule (learning-rate callbacks do). Cross-replica context only. A rate is part of
  // state(); a schedule is not, the program sets it again.
  void set_learning_rate(Schedule schedule) const;
  // Returns the rule that it was made with.
  const Optimizer& rule() const;
  // Returns the names of the parameters that it updates, in the order of the gradients.
  const std::vector<std::string>& parameter_names() const;
  // Returns the number that the loss of the next step is multiplied with; 1 without loss scaling.
  double loss_scale() const;
  // Returns the timeline of the last step; without messages on GPUs, and if they do not leave during backward
  // (docs/multi-worker.md says when they do).
  ExchangeTimeline exchange_timeline() const;
  // Returns the bytes of parameters, gradients and slots; docs/parallelism.md has what they should be.
  StateBytes state_bytes() const;

  // Returns everything that a restart needs, by name ("iterations", "<parameter>/<slot>", "learning_rate" where one was
  // set): independent of strategy and replicas. Where the replicas share the slots (MirroredOptions::sharding) all
  // workers call this, and each gets all of them.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  // NotFound or InvalidArgument name the entry that is missing or does not fit.
  void load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state) const;

  // Puts the averages that use_ema keeps into the parameters, as Keras does at the end of fit, and brings those of
  // workers together that LocalSgdOptions have let go apart; does nothing without either or before the first update.
  // Cross-replica context only, and with LocalSgdOptions on all workers.
  void finalize_variable_values() const;

  // Returns what gradient_accumulation_steps has added up so far in this process's replicas, and what they keep of
  // gradients that have lost something on their way (PowerSgdOptions), or of updates of their own (LocalSgdOptions), as
  // CPU tensors; none where there is none of it. A restart with this state goes on bit for bit under the same strategy;
  // load_state() alone drops it.
  std::vector<torch::Tensor> accumulated() const;
  // InvalidArgument: of other parameters or another number of replicas.
  void load_accumulated(const std::vector<torch::Tensor>& sums) const;

 private:
  friend class Access;

  std::shared_ptr<Step> step_;
};

}  // namespace cohort
