// OptimizerState: what a MirroredOptimizer is a handle to: the rule, the flat parameters, the slots, the step count.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/optimizer.h"
#include "train/engine/flat_parameters.h"
#include "train/engine/update_engine.h"

namespace cohort {

// The entry of an optimizer's state that holds a rate that was set.
inline constexpr const char* kLearningRateEntry = "learning_rate";

class OptimizerState {
 public:
  OptimizerState(MirroredModule module, Optimizer rule);
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;

  // Inside a replica; see ReplicaOptimizer.
  void minimize(Replica& replica, const torch::Tensor& loss);
  void apply(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced) {
    apply(replica, std::move(gradients), reduced, 1.0);
  }
  std::vector<torch::Tensor> gradients(Replica& replica, const torch::Tensor& loss);
  ExchangeTimeline exchange_timeline() const { return engine_->timeline(); }

  const Optimizer& rule() const { return rule_; }
  int64_t iterations() const { return engine_->iterations().value_or(counts_.front().iterations); }
  double learning_rate() const { return schedule_(iterations()); }
  void set_learning_rate(Schedule schedule) {
    engine_->set_learning_rate(schedule);
    schedule_ = std::move(schedule);
    rate_is_set_ = schedule_.is_constant();
  }
  const std::vector<std::string>& parameter_names() const { return names_; }
  double loss_scale() const { return counts_.front().loss_scale; }

  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  void load_state(const std::vector<std::pair<std::string, torch::Tensor>>& state);
  std::vector<torch::Tensor> accumulated() const;
  void load_accumulated(const std::vector<torch::Tensor>& sums);

 private:
  // Each replica keeps its own, so that no replica reads what another writes.
  struct alignas(64) Counts {
    int64_t iterations = 0;
    int64_t accumulated = 0;                 // minimize() calls since the last update
    std::vector<torch::Tensor> accumulator;  // sums of gradients, one a parameter
    double loss_scale = 1.0;
    int64_t good_steps = 0;  // in a row, since the loss scale changed
  };

  // `scale`: what the gradients are multiplied with already.
  void apply(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced, double scale);
  void load_rate(std::optional<double> saved);
  void note_step(Counts& counts, bool updated) const;
  void require_own(const Replica& replica) const;
  void require_loss(const Replica& replica, const torch::Tensor& loss) const;
  torch::Tensor slot_of(std::size_t parameter, std::size_t slot) const;

  MirroredModule module_;
  Optimizer rule_;
  Schedule schedule_;
  bool rate_is_set_ = false;  // to a number that is not the rule's own: a part of the state
  FlatParameters flat_;
  std::unique_ptr<UpdateEngine> engine_;
  std::vector<std::string> names_;
  std::vector<Counts> counts_;
};

}  // namespace cohort
