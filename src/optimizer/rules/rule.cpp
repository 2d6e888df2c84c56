// The code that the rules share: reading gradients, the correction of biases, averages of the parameters, checks of
// options.
#include "optimizer/rules/rule.h"

#include <algorithm>

#include "base/kernels/kernels.h"

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

std::vector<std::string> unadapted(std::vector<std::string> adaptation, const std::vector<std::string>& decay,
                                   Formulation formulation) {
  const bool also = formulation == Formulation::kTorch || (formulation == Formulation::kLegacy && adaptation.empty());
  if (also) adaptation.insert(adaptation.end(), decay.begin(), decay.end());
  return adaptation;
}

SquaredNorms prepare_in_blocks(const Segment& segment, const std::function<void(int64_t at, int64_t n)>& visit) {
  constexpr int64_t kBlock = 1024;
  const auto item = static_cast<int64_t>(c10::elementSize(segment.dtype));
  SquaredNorms norms;
  for (int64_t at = 0; at < segment.size; at += kBlock) {
    const int64_t n = std::min(kBlock, segment.size - at);
    visit(at, n);
    norms.parameter += kernels::squared_norm(static_cast<char*>(segment.parameter) + at * item, n, segment.dtype);
    norms.direction += kernels::squared_norm(static_cast<char*>(segment.gradient) + at * item, n, segment.dtype);
  }
  return norms;
}

torch::Tensor norm_of(const torch::Tensor& tensor) {
  return tensor.norm(2, torch::kDouble);
}

torch::Tensor norm_of(const torch::Tensor& part, const StepContext& context) {
  torch::Tensor norm = norm_of(part);
  if (context.add_up == nullptr) return norm;
  norm.square_();
  (*context.add_up)(norm);
  return norm.sqrt_();
}

torch::Tensor trust_or_one(const torch::Tensor& ratio, const torch::Tensor& parameter_norm,
                           const torch::Tensor& direction_norm) {
  const torch::Tensor zero = parameter_norm.eq(0).logical_or_(direction_norm.eq(0));
  return ratio.masked_fill(zero, 1.0);
}

}  // namespace cohort
