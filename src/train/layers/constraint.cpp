// Constraints: the values that parameters get after each update (step/constrained.h).
#include "cohort/train/layers/constraint.h"

#include <ATen/Functions.h>

#include "base/fail.h"
#include "train/layers/constraints.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

constexpr double kEpsilon = 1e-7;  // Keras'

void check_axis(std::string_view type, const std::vector<int64_t>& axis) {
  if (axis.empty()) fail_option(type, "axis is empty, wanted one dimension or more");
}

torch::Tensor norms_of(const torch::Tensor& x, const std::vector<int64_t>& axis) {
  for (const int64_t each : axis) {
    if (each >= -x.dim() && each < x.dim()) continue;
    fail<InvalidArgument>("[layers] a constraint has the axis ", each, ", but the parameter has the shape ", x.sizes(),
                          " in Keras' layout");
  }
  return x.square().sum(axis, /*keepdim=*/true).sqrt();
}

struct Constrain {
  const torch::Tensor& x;

  torch::Tensor operator()(std::monostate) const { return x; }
  torch::Tensor operator()(const MaxNorm& options) const {
    const torch::Tensor norms = norms_of(x, options.axis);
    return x * (at::clamp(norms, 0.0, options.max_value) / (norms + kEpsilon));
  }
  torch::Tensor operator()(const MinMaxNorm& options) const {
    const torch::Tensor norms = norms_of(x, options.axis);
    const torch::Tensor wanted =
        at::clamp(norms, options.min_value, options.max_value) * options.rate + norms * (1.0 - options.rate);
    return x * (wanted / (norms + kEpsilon));
  }
  torch::Tensor operator()(NonNeg) const { return at::relu(x); }
  torch::Tensor operator()(const UnitNorm& options) const { return x / (norms_of(x, options.axis) + kEpsilon); }
  torch::Tensor operator()(const Constraint::Function& function) const { return function(x); }
};

}  // namespace

Constraint::Constraint(MaxNorm options) {
  check_axis("MaxNorm", options.axis);
  if (!(options.max_value >= 0.0)) fail_option("MaxNorm", "max_value must be 0 or more, got ", options.max_value);
  kind_ = std::move(options);
}

Constraint::Constraint(MinMaxNorm options) {
  check_axis("MinMaxNorm", options.axis);
  if (!(options.min_value >= 0.0 && options.min_value <= options.max_value)) {
    fail_option("MinMaxNorm", "min_value must be 0 or more and at most max_value, got ", options.min_value, " and ",
                options.max_value);
  }
  if (!(options.rate >= 0.0 && options.rate <= 1.0)) {
    fail_option("MinMaxNorm", "rate must be in [0, 1], got ", options.rate);
  }
  kind_ = std::move(options);
}

Constraint::Constraint(UnitNorm options) {
  check_axis("UnitNorm", options.axis);
  kind_ = std::move(options);
}

Constraint::Constraint(Function function) {
  if (!function) fail_option("Constraint", "the function is empty");
  kind_ = std::move(function);
}

Constraint Constraint::parse(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "maxnorm") return MaxNorm{};
  if (plain == "minmaxnorm") return MinMaxNorm{};
  if (plain == "nonneg") return NonNeg{};
  if (plain == "unitnorm") return UnitNorm{};
  fail<NotFound>("[layers] there is no constraint \"", name,
                 "\"; there are max_norm, min_max_norm, non_neg, unit_norm");
}

torch::Tensor Constraint::operator()(const torch::Tensor& parameter) const {
  return std::visit(Constrain{parameter}, kind_);
}

void check_two_biases(std::string_view type, const Constraint& constraint) {
  if (!constraint || std::holds_alternative<NonNeg>(constraint.kind())) return;
  fail_option(type, "bias_constraint must be NonNeg, because the bias of Keras is two vectors here");
}

torch::Tensor keras_kernel(const torch::Tensor& weight) {
  return weight.dim() < 2 ? weight : weight.movedim(at::IntArrayRef{0, 1}, at::IntArrayRef{-1, -2});
}

torch::Tensor keras_depthwise(const torch::Tensor& weight, int64_t multiplier) {
  return weight.view({weight.size(0) / multiplier, multiplier, weight.size(2), weight.size(3)}).permute({2, 3, 0, 1});
}

}  // namespace cohort
