// The policy of scaling and clipping; see scaling.h.
#include "step/scaling.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace cohort {

LossScaler::LossScaler(std::optional<LossScale> options) : options_(options) {
  if (options_) scale_ = options_->initial_scale;
}

void LossScaler::note(bool finite) {
  if (!options_ || !options_->dynamic) return;
  if (!finite) {
    scale_ = std::max<double>(std::numeric_limits<float>::min(), scale_ / 2.0);
    good_steps_ = 0;
  } else if (++good_steps_ >= options_->growth_steps) {
    scale_ *= 2.0;
    good_steps_ = 0;
  }
}

void LossScaler::restore(double scale, int64_t good_steps) {
  if (!options_) return;
  if (options_->dynamic) scale_ = scale;
  good_steps_ = good_steps;
}

StepContext step_context(const GradientOptions& options, const Schedule& rate, int64_t iterations) {
  const int64_t calls = options.gradient_accumulation_steps;
  return {.learning_rate = rate(iterations * calls + calls - 1),
          .step = iterations + 1,
          .clipvalue = options.clipvalue,
          .l2 = options.l2,
          .calls = calls};
}

bool needs_norm(const GradientOptions& options) {
  return options.global_clipnorm > 0.0 || options.clipnorm > 0.0 || options.loss_scale.has_value();
}

double clip_factor(double squared_norm, double clipnorm) {
  if (clipnorm <= 0.0) return 1.0;
  if (!std::isfinite(squared_norm)) return std::numeric_limits<double>::quiet_NaN();
  return std::min(1.0, clipnorm / std::sqrt(squared_norm));
}

torch::Tensor clip_factor(const torch::Tensor& norm, double clipnorm) {
  const torch::Tensor factor = norm.reciprocal().mul_(clipnorm).clamp_max_(1.0);
  return factor.add_(norm - norm);
}

bool scale_by_norm(double squared_norm, const GradientOptions& options, StepContext& context) {
  if (options.loss_scale && !std::isfinite(squared_norm)) return false;
  context.grad_scale *= clip_factor(squared_norm * context.grad_scale * context.grad_scale, options.global_clipnorm);
  return true;
}

torch::Tensor clip_factor(const torch::Tensor& norm, double clipnorm, const StepContext& context,
                          const torch::Tensor& numbers) {
  return clip_factor(numbers.defined() ? norm.mul(numbers[0]) : norm.mul(context.grad_scale), clipnorm);
}

DeviceScaling scaling_by_norm(const torch::Tensor& norm, const GradientOptions& options, const StepContext& context,
                              const torch::Tensor& numbers) {
  DeviceScaling scaling{.numbers = numbers};
  if (options.loss_scale && norm.is_cpu()) {
    scaling.verdict = std::isfinite(norm.item<double>());
  } else if (options.loss_scale) {
    scaling.finite = norm.isfinite();
    scaling.verdict = numbers.defined() ? Verdict::of_runs(norm, scaling.finite)
                                        : Verdict(backend_of(norm.device()).fetch(norm), scaling.finite);
  }
  if (options.global_clipnorm > 0.0) {
    scaling.factor = clip_factor(norm, options.global_clipnorm, context, numbers);
  }
  return scaling;
}

}  // namespace cohort
