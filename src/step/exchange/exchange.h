// Exchange: the way in which the replicas' gradients become sums, and the place where the update takes them. There is
// one class for each way; make_exchange() has the table that chooses.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/slices.h"
#include "cohort/optimizer.h"
#include "cohort/replica.h"
#include "cohort/strategy.h"
#include "collective/packs.h"
#include "optimizer/update_rule.h"
#include "step/flat_parameters.h"
#include "step/verdict.h"

namespace cohort {

class ExchangeInShards;

class Exchange {
 public:
  virtual ~Exchange() = default;

  // Computes the gradients of this replica's parameters; their exchange may begin meanwhile.
  virtual void backward(Replica& replica, const torch::Tensor& loss);
  virtual ExchangeTimeline timeline() const;
  // Drops what a step that failed has begun. No replica runs.
  virtual void drop_step() {}

  // Collective: sums the gradients (unless `reduced`) and has every copy updated. `gradients` are this replica's, one a
  // parameter, undefined for zero; the caller has given them up. `context` has the rate, the step, and in grad_scale
  // what the sums are to be multiplied with; clipping comes on top. Returns whether there was an update, the same on
  // all replicas of all workers: with a loss scale nothing is updated by sums that are not finite.
  virtual Verdict step(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, StepContext context) = 0;

  // Returns what takes gradients where a replica keeps those of its shard alone (in_shards.h); null: each has all.
  virtual ExchangeInShards* shards() { return nullptr; }

  // The slots as flat tensors, [group][slot].
  using Slots = std::vector<std::vector<torch::Tensor>>;
  // Returns all slots; none where other processes have them. Where replicas share them this is a collective of all
  // workers and returns a copy, else they are those of one replica.
  virtual Slots slots() const = 0;
  // Returns the slots of a local replica, which may have parts of parameters.
  virtual Slots slots_of(int /*local_id*/) const { return slots(); }
  // Returns those of each local replica, [replica], as slots() does.
  virtual std::vector<Slots> slots_of_all() const;
  // What a local replica has of a parameter's slots where it has slices: elements of the parameter as it lies in
  // memory.
  struct OwnSlots {
    int local_id = 0;
    std::size_t parameter = 0;
    Slice elements;
    std::vector<torch::Tensor> values;  // of each slot: the replica's own memory
  };
  // Returns what the local replicas have of slots; nothing where they have those of whole parameters.
  virtual std::optional<std::vector<OwnSlots>> own_slots() const { return std::nullopt; }
  // Makes the slots of all holders what was put into those of slots(), of that step. Not called where own_slots() has
  // them.
  virtual void spread_slots(int64_t /*iterations*/) {}
  // Returns what this process keeps of earlier gradients, on the CPU: it goes on from that, or forgets it.
  virtual std::vector<torch::Tensor> own_state() const { return {}; }
  virtual void load_own_state(std::span<const torch::Tensor> /*state*/) {}
  virtual void forget_own_state() {}
  // Returns the bytes of the states on the local replica that has most of them.
  virtual StateBytes state_bytes() const;

  // Brings parameters together that workers have updated by themselves; a collective of all workers.
  virtual void bring_together() {}

  // Gives a local replica's copy of the parameters these values, flat, one a group. Called for each of them.
  virtual void set_values(int local_id, const std::vector<torch::Tensor>& values);

  // Returns the steps that other processes, where they update, are known to have made.
  virtual std::optional<int64_t> iterations() const;
  // Tells processes that update elsewhere the rate from now on; step() hears of it by its context.
  virtual void set_learning_rate(const Schedule& schedule);

 protected:
  explicit Exchange(FlatParameters& flat) : flat_(flat) {}

  // Returns the bytes of a replica's copy of the parameters.
  int64_t parameter_bytes() const;
  // Returns the bytes of all slots that there are.
  static int64_t bytes_of(const Slots& slots);

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
  const char* no_messages = nullptr;  // the reason why there are no messages of gradients; null: there are
};

// The exchange of a path. Wings add theirs.
struct ExchangeMaker {
  GradientPath path;
  std::unique_ptr<Exchange> (*make)(const ExchangeParts& parts);
};

// Makes the exchange of replicas that reach each other's memory: each sums and updates its range for all.
std::unique_ptr<Exchange> make_shared_memory_exchange(const ExchangeParts& parts);
// Makes the same for several processes: the sums of this one go on over all workers.
std::unique_ptr<Exchange> make_over_workers_exchange(const ExchangeParts& parts);
// Makes the exchange in which each replica has the sum of everything, by messages, and updates its own copy.
std::unique_ptr<Exchange> make_communicator_exchange(const ExchangeParts& parts);
// Makes the exchange whose sum goes to the parameter device, is applied there, and all replicas copy the result.
std::unique_ptr<Exchange> make_central_exchange(const ExchangeParts& parts);

// Returns how the flat gradients of each group are cut into messages, after the strategy's options: [group]. If these
// do not say, a message has so many bytes at least; 0: all of them are one.
std::vector<std::vector<Pack>> gradient_packs(const StrategyCore& core, const FlatParameters& flat,
                                              int64_t bytes_by_default = 0);

}  // namespace cohort
