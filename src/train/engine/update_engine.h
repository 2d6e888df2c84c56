// UpdateEngine: how the replicas' gradients become new parameters. Three ways: each replica updates its own range for
// all (sharded, replicas that share memory), each replica updates its own whole copy (replicated, everything else), or
// other processes do it (server).
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "cohort/optimizer.h"
#include "cohort/replica.h"
#include "collective/packs.h"
#include "optimizer/update_rule.h"
#include "train/engine/flat_parameters.h"

namespace cohort {

class UpdateEngine {
 public:
  virtual ~UpdateEngine() = default;

  // Computes the gradients of this replica's parameters, whose exchange may begin meanwhile.
  virtual void backward(Replica& replica, const torch::Tensor& loss) { loss.backward(); }
  virtual ExchangeTimeline timeline() const { return {}; }

  // Collective: sums the gradients (unless `reduced`), clips, updates every copy. `gradients` are this replica's, one a
  // parameter, undefined for zero. `context` comes with the rate and the step; the engine adds what clipping needs.
  // `factor` multiplies the sum (accumulation, loss scaling). False, on all replicas of all workers: with loss scaling
  // the sum was not finite, and nothing was updated.
  virtual bool step(Replica& replica, const std::vector<torch::Tensor>& gradients, bool reduced, StepContext context,
                    double factor) = 0;

  // The slots as flat tensors, [group][slot], of one replica that holds all of them.
  virtual const std::vector<std::vector<torch::Tensor>>& slots() const = 0;
  // Makes all holders equal to what slots() now says, of that step.
  virtual void spread_slots(int64_t iterations) = 0;

  // Where other processes update: the steps that they are known to have made.
  virtual std::optional<int64_t> iterations() const { return std::nullopt; }
  // Of the steps from now on; step() hears of it by its context.
  virtual void set_learning_rate(const Schedule& /*schedule*/) {}
};

std::unique_ptr<UpdateEngine> make_sharded_update(StrategyCore& core, FlatParameters& flat, const Optimizer& rule);
// Where variables are kept by other processes.
std::unique_ptr<UpdateEngine> make_server_update(const MirroredModule& module, FlatParameters& flat,
                                                 const Optimizer& rule);
std::unique_ptr<UpdateEngine> make_replicated_update(StrategyCore& core, FlatParameters& flat, const Optimizer& rule);

// The sharded one where it serves: memory in common, float32 or float64, and no other cross-device ops asked for.
std::unique_ptr<UpdateEngine> make_update_engine(const MirroredModule& module, FlatParameters& flat,
                                                 const Optimizer& rule);

// Flat slots with their initial values on the device of the group's copy.
std::vector<std::vector<torch::Tensor>> make_slots(const FlatParameters& flat, const UpdateRule& rule,
                                                   std::size_t copy);

// How the flat gradients of each group are cut into messages, after the strategy's options: [group].
std::vector<std::vector<Pack>> gradient_packs(const StrategyCore& core, const FlatParameters& flat);

// The factor of clipping by global norm: 1 when the norm is small enough or clipping is off.
double clip_factor(double squared_norm, double global_clipnorm);

}  // namespace cohort
