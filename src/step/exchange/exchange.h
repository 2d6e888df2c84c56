// Exchange: the way in which the replicas' gradients become sums, and the place where the update takes them. There is
// one class for each way; make_exchange() has the table that chooses.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "cohort/optimizer.h"
#include "cohort/replica.h"
#include "collective/packs.h"
#include "optimizer/update_rule.h"
#include "record/function_recording.h"
#include "step/flat_parameters.h"

namespace cohort {

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Computes the gradients of this replica's parameters; their exchange may begin meanwhile.
  virtual void backward(Replica& replica, const torch::Tensor& loss);
  virtual ExchangeTimeline timeline() const;

  // Collective: sums the gradients (unless `reduced`) and has every copy updated. `gradients` are this replica's, one a
  // parameter, undefined for zero; the caller has given them up. `context` has the rate, the step, and in grad_scale
  // what the sums are to be multiplied with; clipping comes on top. Returns false, on all replicas of all workers, when
  // with a loss scale the sum was not finite and nothing was updated.
  virtual bool step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) = 0;

  // Where work is recorded: records the update of a replica again, on tensors that stand for its own, with other
  // numbers; parameters whose updates have the same numbers are one.
  virtual record::HostPart::Again update_again(int local_id, StepContext context);

  // Returns the slots as flat tensors, [group][slot], of one replica that holds all of them.
  virtual const std::vector<std::vector<torch::Tensor>>& slots() const = 0;
  // Makes all holders equal to what slots() now says, of that step.
  virtual void spread_slots(int64_t iterations) = 0;

  // Gives every copy of the parameters these values, flat, one a group.
  virtual void set_values(const std::vector<torch::Tensor>& values);

  // Returns the steps that other processes, where they update, are known to have made.
  virtual std::optional<int64_t> iterations() const;
  // Tells processes that update elsewhere the rate from now on; step() hears of it by its context.
  virtual void set_learning_rate(const Schedule& schedule);

 protected:
  explicit Exchange(FlatParameters& flat) : flat_(flat) {}

  FlatParameters& flat_;
};

// Returns the exchange for a module and a rule: the strategy says on which path gradients become parameters
// (strategy/placement.h), and a table has the class for each.
std::unique_ptr<Exchange> make_exchange(const MirroredModule& module, FlatParameters& flat, const Optimizer& rule);

// The parts that an exchange is made of.
struct ExchangeParts {
  StrategyCore& core;
  const MirroredModule& module;
  FlatParameters& flat;
  const Optimizer& rule;
};

// Makes the exchange of replicas that reach each other's memory: each sums and updates its range for all.
std::unique_ptr<Exchange> make_shared_memory_exchange(const ExchangeParts& parts);
// Makes the same for several processes: the sums of this one go on over all workers.
std::unique_ptr<Exchange> make_over_workers_exchange(const ExchangeParts& parts);
// Makes the exchange in which each replica has the sum of everything, by messages, and updates its own copy.
std::unique_ptr<Exchange> make_communicator_exchange(const ExchangeParts& parts);
// Makes the exchange whose sum goes to the parameter device, is applied there, and all replicas copy the result.
std::unique_ptr<Exchange> make_central_exchange(const ExchangeParts& parts);
// Makes the exchange for variables that other processes keep and update.
std::unique_ptr<Exchange> make_servers_exchange(const ExchangeParts& parts);

// Makes the exchange whose sums and update are operations of the recorded step, which is begun for all replicas
// together.
std::unique_ptr<Exchange> make_recorded_exchange(const ExchangeParts& parts);

// Returns how the flat gradients of each group are cut into messages, after the strategy's options: [group].
std::vector<std::vector<Pack>> gradient_packs(const StrategyCore& core, const FlatParameters& flat);

}  // namespace cohort
