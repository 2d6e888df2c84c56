// The code that the rules share: reading gradients, the correction of biases, averages of the parameters, checks of
// options.
#include "optimizer/rules/rule.h"

namespace cohort {

torch::Tensor read_gradient(const torch::Tensor& parameter, torch::Tensor gradient, const StepContext& context,
                            double l2_decay) {
  if (context.grad_scale != 1.0) gradient.mul_(context.grad_scale);
  if (context.clipvalue > 0.0) gradient.clamp_(-context.clipvalue, context.clipvalue);
  if (l2_decay != 0.0) gradient.add_(parameter, l2_decay);
  return gradient;
}

void refuse_dtype(torch::ScalarType dtype, const char* wanted) {
  fail<InvalidArgument>("[optimizer] a segment of ", c10::toString(dtype), " came, ", wanted, " was wanted");
}

BiasCorrections bias_corrections(double beta_1, double beta_2, int64_t step) {
  struct Memo {
    double beta_1 = 0.0;
    double beta_2 = 0.0;
    int64_t step = 0;
    BiasCorrections value;
  };
  thread_local Memo memo;
  if (memo.step != step || memo.beta_1 != beta_1 || memo.beta_2 != beta_2) {
    const auto t = static_cast<double>(step);
    memo = {beta_1, beta_2, step, {1.0 - std::pow(beta_1, t), std::sqrt(1.0 - std::pow(beta_2, t))}};
  }
  return memo.value;
}

void require_not_negative(const char* rule, const char* field, double value) {
  if (std::isfinite(value) && value >= 0.0) return;
  fail<InvalidArgument>("[optimizer] ", rule, ": ", field, " is ", value, ", wanted a number of 0 or more");
}

void require_fraction(const char* rule, const char* field, double value) {
  if (value >= 0.0 && value < 1.0) return;
  fail<InvalidArgument>("[optimizer] ", rule, ": ", field, " is ", value, ", wanted 0 or more and below 1");
}

void require_ema(const char* rule, const EmaOptions& ema) {
  require_fraction(rule, "ema_momentum", ema.ema_momentum);
  if (ema.ema_overwrite_frequency < 0) {
    fail<InvalidArgument>("[optimizer] ", rule, ": ema_overwrite_frequency is ", ema.ema_overwrite_frequency,
                          ", wanted 0 or more");
  }
  if (ema.ema_overwrite_frequency > 0 && !ema.use_ema) {
    fail<InvalidArgument>("[optimizer] ", rule, ": ema_overwrite_frequency is ", ema.ema_overwrite_frequency,
                          " without use_ema, which makes the averages");
  }
}

void require_torch(const char* rule, const char* field, bool unset, Formulation formulation) {
  if (unset || formulation == Formulation::kTorch) return;
  fail<InvalidArgument>("[optimizer] ", rule, ": ", field, " came, which only formulation = kTorch has");
}

Surroundings surroundings(double weight_decay, const EmaOptions& ema, Formulation formulation) {
  if (formulation == Formulation::kTorch) return {.l2 = weight_decay, .ema = ema};
  return {.weight_decay = weight_decay, .ema = ema};
}

double ema_momentum(const EmaOptions& ema, const StepContext& context, int64_t moves) {
  // The average begins as the parameter is after the first update.
  return context.step == 1 ? 0.0 : std::pow(ema.ema_momentum, static_cast<double>(moves));
}

bool overwrites(const EmaOptions& ema, const StepContext& context) {
  return ema.ema_overwrite_frequency > 0 && context.step % ema.ema_overwrite_frequency == 0;
}

void move_average(torch::Tensor& average, const torch::Tensor& parameter, double momentum) {
  average.mul_(momentum).add_(parameter, 1.0 - momentum);
}

}  // namespace cohort
