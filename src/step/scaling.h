// Scaling: the factors of gradients between backward and the update, and the steps that are left out. The loss scale,
// averages over several calls and clipping by norm are one policy, which every exchange follows.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "cohort/optimizer.h"
#include "optimizer/update_rule.h"
#include "step/verdict.h"

namespace cohort {

// The factor of the loss: fixed, or halved after a step whose gradients were not finite and doubled after
// `growth_steps` others in a row (Micikevicius et al., "Mixed Precision Training", 2018). Every replica has one of its
// own, and all come to the same numbers.
class LossScaler {
 public:
  // Without options the scale is 1 and stays so.
  explicit LossScaler(std::optional<LossScale> options);

  double scale() const { return scale_; }
  // Returns the finite steps in a row since the scale changed.
  int64_t good_steps() const { return good_steps_; }
  // Takes note of a step: `finite` is false for one that was left out.
  void note(bool finite);
  // Goes on from what a checkpoint has. A fixed scale stays the program's own.
  void restore(double scale, int64_t good_steps);

 private:
  std::optional<LossScale> options_;
  double scale_ = 1.0;
  int64_t good_steps_ = 0;
};

// Returns what the update of all elements knows after so many updates. The rate is that of the call of minimize() that
// makes the update: a schedule counts the calls.
StepContext step_context(const GradientOptions& options, const Schedule& rate, int64_t iterations);

// Returns whether norms of the summed gradients are needed before the update: of all of them, or of each.
bool needs_norm(const GradientOptions& options);

// Returns the factor of clipping by norm: 1 when the norm is at most `clipnorm`, or that is 0. A norm that is not
// finite gives NaN, so that it is seen.
double clip_factor(double squared_norm, double clipnorm);
// Does the same for norms on a device, without a wait for it.
torch::Tensor clip_factor(const torch::Tensor& norm, double clipnorm);

// Multiplies `context.grad_scale` by the factor of clipping, for summed gradients of this squared norm (before
// grad_scale). Returns false, and changes nothing, when the step is to be left out: with a loss scale the sums are not
// finite.
bool scale_by_norm(double squared_norm, const GradientOptions& options, StepContext& context);

// The same where the sums lie on a device, whose numbers the host does not wait for.
struct DeviceScaling {
  Verdict verdict = true;
  torch::Tensor finite = {};  // a boolean: the sums are finite; undefined: the update does not depend on it
  torch::Tensor factor = {};  // the factor of clipping; undefined: 1
  // Where the update is captured as a part of a graph: its numbers on the device, of which the first is grad_scale;
  // undefined: they are those of the context.
  torch::Tensor numbers = {};
};
// `norm` is that of the sums (before grad_scale), one double on their device. Where that is the host, what it says is
// known at once, so that `finite` stays undefined. `numbers` are DeviceScaling's.
DeviceScaling scaling_by_norm(const torch::Tensor& norm, const GradientOptions& options, const StepContext& context,
                              const torch::Tensor& numbers = {});
// Returns the factor of clipping by such a norm.
torch::Tensor clip_factor(const torch::Tensor& norm, double clipnorm, const StepContext& context,
                          const torch::Tensor& numbers);

}  // namespace cohort
