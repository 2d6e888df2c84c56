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
  if (l1 == 0.0) return Regularizer([l2](const torch::Tensor& x) { return x.square().sum().mul(l2); });
  if (l2 == 0.0) return Regularizer([l1](const torch::Tensor& x) { return x.abs().sum().mul(l1); });
  return Regularizer([l1, l2](const torch::Tensor& x) { return x.abs().sum().mul(l1) + x.square().sum().mul(l2); });
}

Regularizer Regularizer::parse(std::string_view name) {
  const std::string plain = plain_name(name);
  if (plain == "l1") return l1();
  if (plain == "l2") return l2();
  if (plain == "l1l2") return l1_l2(0.01, 0.01);
  fail<NotFound>("[layers] there is no regularizer \"", name, "\"; there are l1, l2, l1_l2");
}

}  // namespace cohort
