#include "step/scaling.h"

#include <algorithm>
#include <cmath>

namespace cohort {

LossScaler::LossScaler(std::optional<LossScale> options) : options_(options) {
  if (options_) scale_ = options_->initial_scale;
}

void LossScaler::note(bool finite) {
  if (!options_ || !options_->dynamic) return;
  if (!finite) {
    scale_ = std::max(1.0, scale_ / 2.0);
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

bool needs_norm(const GradientOptions& options) {
  return options.global_clipnorm > 0.0 || options.loss_scale.has_value();
}

double clip_factor(double squared_norm, double global_clipnorm) {
  if (global_clipnorm <= 0.0) return 1.0;
  const double norm = std::sqrt(squared_norm);
  // PyTorch's form; a NaN norm passes through, so that it is seen.
  const double factor = global_clipnorm / (norm + 1e-6);
  return factor < 1.0 || std::isnan(factor) ? factor : 1.0;
}

bool scale_by_norm(double squared_norm, const GradientOptions& options, StepContext& context) {
  if (options.loss_scale && !std::isfinite(squared_norm)) return false;
  context.grad_scale *= clip_factor(squared_norm * context.grad_scale * context.grad_scale, options.global_clipnorm);
  return true;
}

}  // namespace cohort
