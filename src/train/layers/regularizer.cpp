// Regularizers: what parameters cost by their values. Models add it to the loss (SequentialModule::penalty()).
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/layers/initializer.h"
#include "train/layers/support.h"

namespace cohort {

Regularizer::Regularizer(Function function) : function_(std::move(function)) {
  if (!function_) fail_option("Regularizer", "the function is empty");
}

Regularizer Regularizer::l1_l2(double l1, double l2) {
  if (!(l1 >= 0.0) || !(l2 >= 0.0)) fail_option("Regularizer", "l1 and l2 must be 0 or more, got ", l1, " and ", l2);
  Regularizer made([l1, l2](const torch::Tensor& x) {
    if (l1 == 0.0) return x.square().sum().mul(l2);
    const torch::Tensor cost = x.abs().sum().mul(l1);
    return l2 == 0.0 ? cost : cost + x.square().sum().mul(l2);
  });
  made.recipe_ = {"l1_l2", {l1, l2}};
  return made;
}

Regularizer Regularizer::orthogonal(double factor, Mode mode) {
  if (!(factor >= 0.0)) fail_option("Regularizer", "factor must be 0 or more, got ", factor);
  Regularizer made([factor, mode](const torch::Tensor& x) {
    if (x.dim() != 2 || x.size(mode == Mode::kRows ? 0 : 1) < 2) {
      fail<InvalidArgument>("[layers] orthogonal_regularizer: the parameter has the shape ", x.sizes(),
                            ", wanted a matrix of two vectors or more");
    }
    const torch::Tensor rows = mode == Mode::kRows ? x : x.t();
    const torch::Tensor units = rows * at::rsqrt(at::clamp_min(rows.square().sum(1, /*keepdim=*/true), 1e-14));
    const auto size = static_cast<double>(units.size(0));
    const torch::Tensor others = 1.0 - at::eye(units.size(0), units.options().requires_grad(false));
    const torch::Tensor cosines = at::matmul(units, units.t()) * others;
    return cosines.abs().sum() * (factor / (size * (size - 1.0)));
  });
  made.takes_keras_layout_ = true;
  made.recipe_ = {"orthogonal", {factor, static_cast<double>(mode)}};
  return made;
}

Regularizer Regularizer::parse(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "l1") return l1();
  if (plain == "l2") return l2();
  if (plain == "l1l2") return l1_l2(0.01, 0.01);
  if (plain == "orthogonalregularizer") return orthogonal();
  fail<NotFound>("[layers] there is no regularizer \"", name, "\"; there are l1, l2, l1_l2, orthogonal_regularizer");
}

}  // namespace cohort
