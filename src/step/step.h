// Step: all that happens between a replica's forward pass and the next: backward, the exchange of the gradients, the
// update. There is one for each mirrored module and rule; MirroredOptimizer is a handle to it.
#pragma once

#include <torch/types.h>

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/optimizer.h"
#include "step/constrained.h"
#include "step/exchange/exchange.h"
#include "step/flat_parameters.h"
#include "step/optimizer_state.h"
#include "strategy/live_optimizers.h"
#include "strategy/memory_holders.h"

namespace cohort {

class StepEngine;
class StepInParts;

class Step : public std::enable_shared_from_this<Step>, public HoldsMemory, public LiveOptimizer {
 public:
  Step(MirroredModule module, Optimizer rule);
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step() override;

  // These are called inside a replica; ReplicaOptimizer has the contract of each.
  void minimize(Replica& replica, const torch::Tensor& loss);
  std::vector<torch::Tensor> gradients(Replica& replica, const torch::Tensor& loss);
  void apply_gradients(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced);

  const Optimizer& rule() const { return rule_; }
  const std::vector<std::string>& parameter_names() const { return names_; }
  OptimizerState& state() { return *state_; }
  ExchangeTimeline exchange_timeline() const { return exchange_->timeline(); }
  StateBytes state_bytes() const { return exchange_->state_bytes(); }
  HeldBytes held_bytes() const override;
  void drop_step() override;

  // The gradients of an update.
  struct Given {
    std::vector<torch::Tensor> gradients;  // one a parameter, undefined for zero
    bool reduced = false;                  // they are sums over the replicas
    bool scaled = false;                   // they are multiplied with the loss scale
  };

 private:
  friend class StepEngine;
  friend class StepInParts;
  // The data that an engine keeps for the steps of one replica.
  struct Kept {
    std::any own;
    std::function<void(const Verdict& verdict)> note;  // of each update that is made at once; may be empty
  };

  // Makes all that depends on which parameters this process has.
  void build();
  // Calls a function that makes parameters absent, and goes on with those that are left, which had these numbers.
  void leave(const std::function<void()>& make_absent, const std::vector<std::size_t>& left);
  torch::Tensor scaled(const Replica& replica, const torch::Tensor& loss);
  // Returns what makes the steps of this thread; null: they are made at once.
  static const StepEngine* engine();
  double fixed_scale() const;
  static std::vector<torch::Tensor> scatter(ExchangeInShards& shards, Replica& replica, ReplicaProgress& progress,
                                            std::vector<torch::Tensor> gradients, bool reduced, double loss_scale);
  void add(ReplicaProgress& progress, const std::vector<torch::Tensor>& gradients) const;
  std::vector<torch::Tensor> take_sums(ReplicaProgress& progress) const;
  // Joins the local replicas, and with several optimizers all workers: all have to step this one. Nothing of a step may
  // be kept before.
  void meet(const Replica& replica) const;
  // Does so where a replica that does not come would part the counts of calls, or there are several optimizers.
  void join(const Replica& replica) const;
  void update(Replica& replica, Given given);
  // Makes the replica's parameters keep to their constraints, where the update was made.
  void constrain(const Replica& replica, const Verdict& verdict) const;
  void backward(Replica& replica, const torch::Tensor& loss);
  // Returns what the update of a replica knows.
  StepContext context(int local_id, bool scaled) const;
  // Returns what an update knows after so many, of gradients with such a scale.
  StepContext context_after(int64_t iterations, double loss_scale) const;
  void require_own(const Replica& replica) const;
  void require_loss(const Replica& replica, const torch::Tensor& loss) const;
  void require_gradients(const std::vector<torch::Tensor>& gradients) const;
  // Fails if there are gradients that were not made from a scaled loss.
  void require_none_before(const Replica& replica) const;

  MirroredModule module_;
  Optimizer rule_;
  std::unique_ptr<FlatParameters> flat_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<OptimizerState> state_;
  ConstrainedModules constrained_;
  std::vector<Kept> kept_;  // [replica], each used by its own thread
  std::vector<std::string> names_;
  std::string call_;                       // the text by which replicas compare their steps
  std::unique_ptr<StepInParts> in_parts_;  // null: a function gets the whole share
};

}  // namespace cohort
