// Hinge losses: a prediction that is on the right side of its target by more than 1 costs nothing.
#include <ATen/Functions.h>

#include "cohort/train/more_losses.h"
#include "wings/metrics/train/losses/elementwise.h"

namespace cohort {

namespace {

// Returns targets of -1 and 1. Those that are 0 and 1 throughout are taken as 0 for -1, without asking the device.
torch::Tensor signs(const torch::Tensor& target) {
  const torch::Tensor binary = target.eq(0).logical_or(target.eq(1)).all();
  return at::where(binary, 2.0 * target - 1.0, target);
}

torch::Tensor hinge(const torch::Tensor& prediction, const torch::Tensor& target) {
  return (1.0 - signs(target) * prediction).clamp_min(0.0);
}

}  // namespace

Loss Hinge(const HingeOptions& options) {
  return Loss(std::make_shared<ElementwiseLoss>(options.name, ElementwiseLoss::Last::kMean, hinge), options.reduction);
}

Loss SquaredHinge(const SquaredHingeOptions& options) {
  const auto squared = [](const torch::Tensor& prediction, const torch::Tensor& target) {
    return at::square(hinge(prediction, target));
  };
  return Loss(std::make_shared<ElementwiseLoss>(options.name, ElementwiseLoss::Last::kMean, squared),
              options.reduction);
}

Loss CategoricalHinge(const CategoricalHingeOptions& options) {
  const auto categorical = [](const torch::Tensor& prediction, const torch::Tensor& target) {
    require_classes("[losses] CategoricalHinge", prediction, -1);
    const torch::Tensor right = (target * prediction).sum(-1);
    const torch::Tensor wrong = ((1.0 - target) * prediction).amax(-1);
    return (wrong - right + 1.0).clamp_min(0.0);
  };
  return Loss(std::make_shared<ElementwiseLoss>(options.name, ElementwiseLoss::Last::kOwn, categorical),
              options.reduction);
}

}  // namespace cohort
