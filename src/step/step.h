// Step: all that happens between a replica's forward pass and the next: backward, the exchange of the gradients, the
// update. There is one for each mirrored module and rule; MirroredOptimizer is a handle to it.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/optimizer.h"
#include "step/exchange/exchange.h"
#include "step/flat_parameters.h"
#include "step/graph_numbers.h"
#include "step/optimizer_state.h"
#include "step/stages_of_step.h"
#include "strategy/live_optimizers.h"
#include "strategy/memory_holders.h"

namespace cohort {

class GraphCapture;
class ReplicaScope;

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

 private:
  // The gradients of an update.
  struct Given {
    std::vector<torch::Tensor> gradients;  // one a parameter, undefined for zero
    bool reduced = false;                  // they are sums over the replicas
    bool scaled = false;                   // they are multiplied with the loss scale
  };

  // Makes all that depends on which parameters this process has.
  void build();
  // Makes the numbers of steps that are captured as graphs, where their updates are a part of these.
  void make_graph_numbers();
  // Where the stages of a pipeline lie with several processes: finds out who has which parameters, leaves this process
  // those that its stages have used, and takes sums of this process's chunks to those of the parameters that it has.
  void find_stages();
  void place(const std::vector<const TensorsUsed*>& used);
  std::vector<torch::Tensor> over_stages(const Replica& replica, std::vector<torch::Tensor> sums) const;
  void minimize_later(ReplicaScope& call, const Replica& replica, const torch::Tensor& loss);
  torch::Tensor scaled(const Replica& replica, const torch::Tensor& loss) const;
  // Returns whether this call of a function is recorded or captured, so that later ones run without it.
  static bool runs_again();
  torch::Tensor renewed_scale(const Replica& replica, const torch::Tensor& like, double factor) const;
  double fixed_scale() const;
  std::vector<torch::Tensor> scatter(Replica& replica, ReplicaProgress& progress, std::vector<torch::Tensor> gradients,
                                     bool reduced, double loss_scale);
  void add(ReplicaProgress& progress, const std::vector<torch::Tensor>& gradients) const;
  std::vector<torch::Tensor> take_sums(ReplicaProgress& progress) const;
  // Joins the local replicas, and with several optimizers all workers: all have to step this one. Nothing of a step may
  // be kept before.
  void meet(const Replica& replica) const;
  // Does so where a replica that does not come would part the counts of calls, or there are several optimizers.
  void join(const Replica& replica) const;
  void update(Replica& replica, Given given);
  void update_in_function(Replica& replica, Given given);
  void update_in_graph(GraphCapture& capture, Replica& replica, Given given);
  void update_by_host(GraphCapture& capture, Replica& replica, Given given);
  // Returns the numbers that a captured step of a replica reads: the scale of the loss with the fixed one, that scale
  // alone, and those of the update, for scaled gradients and for others.
  std::vector<double> graph_row(int local_id, int64_t iterations, double loss_scale) const;
  // Returns them as they are on the device in each run.
  torch::Tensor row_in_graph(GraphCapture& capture, int local_id) const;
  void write_row(int local_id) const;
  void backward(Replica& replica, const torch::Tensor& loss);
  bool count_in_function(int local_id, bool ends);
  void uncount_in_function(int local_id, bool ends);
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
  std::vector<std::unique_ptr<GraphNumbers>> graph_numbers_;  // [replica]; none where the host makes the updates
  std::vector<std::string> names_;
  std::string call_;  // the text by which replicas compare their steps
  StagesOfStep stages_;
};

}  // namespace cohort
