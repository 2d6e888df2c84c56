// StepEngine: makes the steps of optimizers while a tracer notes the work of the thread (base/tracer.h). Without a
// tracer, Step makes them itself.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cohort/replica.h"
#include "step/step.h"

namespace cohort {

// Called by replicas' threads, several at a time.
class StepEngine {
 public:
  virtual ~StepEngine() = default;

  // Computes the gradients of the replica's parameters, of a loss that is multiplied with loss_scale().
  virtual void backward(Step& step, Replica& replica, const torch::Tensor& loss) const = 0;
  // Returns the scale of the loss, times a factor, as a number of the device and the dtype of `like`, which each run
  // has anew.
  virtual torch::Tensor loss_scale(Step& step, const Replica& replica, const torch::Tensor& like,
                                   double factor) const = 0;
  // Updates the parameters, and counts, in each run.
  virtual void update(Step& step, Replica& replica, Step::Given given) const = 0;

 protected:
  // Accessors to the parts of a step, for engines.
  static FlatParameters& flat(const Step& step) { return *step.flat_; }
  static Exchange& exchange(const Step& step) { return *step.exchange_; }
  static OptimizerState& state(const Step& step) { return *step.state_; }
  static std::weak_ptr<Step> weak(Step& step) { return step.weak_from_this(); }
  static Step::Kept& kept(Step& step, int local_id) { return step.kept_[static_cast<std::size_t>(local_id)]; }
  static double fixed_scale(const Step& step) { return step.fixed_scale(); }
  static StepContext context(const Step& step, int local_id, bool scaled) { return step.context(local_id, scaled); }
  static StepContext context_after(const Step& step, int64_t iterations, double loss_scale) {
    return step.context_after(iterations, loss_scale);
  }
  static void add(const Step& step, int local_id, const std::vector<torch::Tensor>& gradients) {
    step.add(step.state_->of(local_id), gradients);
  }
  static std::vector<torch::Tensor> take_sums(const Step& step, int local_id) {
    return step.take_sums(step.state_->of(local_id));
  }
  // Updates at once, as a step does without an engine.
  static void update_now(Step& step, Replica& replica, Step::Given given) { step.update(replica, std::move(given)); }
};

}  // namespace cohort
