#include "wings/optimizers/optimizer/rules/more_rule.h"

#include <algorithm>

#include "ops/kernels/kernels.h"

namespace cohort {

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
