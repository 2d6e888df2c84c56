// Constraints: the values that parameters get after each update (step/constrained.h).
#include "cohort/train/layers/constraint.h"

#include <ATen/Functions.h>

#include "base/fail.h"
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

}  // namespace

Constraint::Constraint(MaxNorm options) {
  check_axis("MaxNorm", options.axis);
  if (!(options.max_value >= 0.0)) fail_option("MaxNorm", "max_value must be 0 or more, got ", options.max_value);
  apply_ = [options](const torch::Tensor& x) {
    const torch::Tensor norms = norms_of(x, options.axis);
    return x * (at::clamp(norms, 0.0, options.max_value) / (norms + kEpsilon));
  };
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
  apply_ = [options](const torch::Tensor& x) {
    const torch::Tensor norms = norms_of(x, options.axis);
    const torch::Tensor wanted =
        at::clamp(norms, options.min_value, options.max_value) * options.rate + norms * (1.0 - options.rate);
    return x * (wanted / (norms + kEpsilon));
  };
  kind_ = std::move(options);
}

Constraint::Constraint(NonNeg options) : kind_(options), apply_([](const torch::Tensor& x) { return at::relu(x); }) {}

Constraint::Constraint(UnitNorm options) {
  check_axis("UnitNorm", options.axis);
  apply_ = [options](const torch::Tensor& x) { return x / (norms_of(x, options.axis) + kEpsilon); };
  kind_ = std::move(options);
}

Constraint::Constraint(Function function) : kind_(function), apply_(std::move(function)) {
  if (!apply_) fail_option("Constraint", "the function is empty");
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

}  // namespace cohort
