#include <cmath>

#include "cohort/train/layers.h"

namespace cohort {

namespace {

// Standard deviation of a unit normal that is cut off at two: what to divide by to get the one that was asked for.
constexpr double kCutOffDeviation = 0.87962566103423978;

void cut_off_normal(torch::Tensor& parameter, double deviation) {
  parameter.normal_();
  for (;;) {
    const torch::Tensor outside = parameter.abs() > 2.0;
    const auto count = outside.sum().item<int64_t>();
    if (count == 0) break;
    parameter.masked_scatter_(outside, torch::randn({count}, parameter.options().requires_grad(false)));
  }
  parameter.mul_(deviation / kCutOffDeviation);
}

void uniform(torch::Tensor& parameter, double variance) {
  const double limit = std::sqrt(3.0 * variance);
  parameter.uniform_(-limit, limit);
}

}  // namespace

void Initializer::fill(torch::Tensor parameter, double fan_in, double fan_out) const {
  const torch::NoGradGuard no_grad;
  if (function_) {
    function_(parameter);
    return;
  }
  const double in = std::max(1.0, fan_in);
  const double average = std::max(1.0, (fan_in + fan_out) / 2.0);
  switch (kind_) {
    case kZeros:
      parameter.zero_();
      break;
    case kOnes:
      parameter.fill_(1.0);
      break;
    case kGlorotUniform:
      uniform(parameter, 1.0 / average);
      break;
    case kGlorotNormal:
      cut_off_normal(parameter, std::sqrt(1.0 / average));
      break;
    case kHeUniform:
      uniform(parameter, 2.0 / in);
      break;
    case kHeNormal:
      cut_off_normal(parameter, std::sqrt(2.0 / in));
      break;
    case kLecunUniform:
      uniform(parameter, 1.0 / in);
      break;
    case kLecunNormal:
      cut_off_normal(parameter, std::sqrt(1.0 / in));
      break;
    case kUniform:
      parameter.uniform_(-0.05, 0.05);
      break;
    case kNormal:
      parameter.normal_(0.0, 0.05);
      break;
  }
}

}  // namespace cohort
