// Focal cross-entropies: examples of which the model is sure count less than those that it gets wrong.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/more_losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

class BinaryFocal final : public LossRule {
 public:
  explicit BinaryFocal(BinaryFocalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    check_smoothing(options_.name, options_.label_smoothing);
    check_mean_axis(options_.name, options_.axis);
  }

  const std::string& name() const override { return options_.name; }
  bool averages_last() const override { return options_.axis == -1; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const torch::Tensor target = binary_target(speaker_, y, prediction, options_.label_smoothing);
    const torch::Tensor p = options_.from_logits ? prediction.sigmoid() : prediction;
    const torch::Tensor entropy = at::binary_cross_entropy(clipped_probabilities(p), target, {}, at::Reduction::None);
    const torch::Tensor of_target = target * p + (1.0 - target) * (1.0 - p);
    torch::Tensor each = (1.0 - of_target).pow(options_.gamma) * entropy;
    if (options_.apply_class_balancing) {
      each = (target * options_.alpha + (1.0 - target) * (1.0 - options_.alpha)) * each;
    }
    return mean_over(speaker_, each, options_.axis);
  }

 private:
  BinaryFocalCrossentropyOptions options_;
  std::string speaker_;
};

class CategoricalFocal final : public LossRule {
 public:
  explicit CategoricalFocal(CategoricalFocalCrossentropyOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    check_smoothing(options_.name, options_.label_smoothing);
  }

  const std::string& name() const override { return options_.name; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const int64_t axis = options_.axis;
    const torch::Tensor target = class_target(speaker_, y, prediction, options_.label_smoothing, axis);
    const torch::Tensor probabilities = options_.from_logits ? prediction.softmax(axis) : prediction;
    const torch::Tensor p = clipped_probabilities(probabilities / probabilities.sum(axis, /*keepdim=*/true));
    const torch::Tensor each = (1.0 - p).pow(options_.gamma) * -(target * p.log());
    return (options_.class_alphas.empty() ? each * options_.alpha : each * alphas(p)).sum(axis);
  }

 private:
  torch::Tensor alphas(const torch::Tensor& p) const {
    const int64_t classes = p.size(options_.axis);
    if (static_cast<int64_t>(options_.class_alphas.size()) != classes) {
      fail<InvalidArgument>(speaker_, ": class_alphas has ", options_.class_alphas.size(),
                            " numbers, but the prediction ", classes, " classes");
    }
    std::vector<int64_t> shape(static_cast<std::size_t>(p.dim()), 1);
    shape[static_cast<std::size_t>(options_.axis < 0 ? options_.axis + p.dim() : options_.axis)] = classes;
    return torch::tensor(options_.class_alphas, torch::kDouble).to(p.options()).view(shape);
  }

  CategoricalFocalCrossentropyOptions options_;
  std::string speaker_;
};

}  // namespace

Loss BinaryFocalCrossentropy(const BinaryFocalCrossentropyOptions& options) {
  return Loss(std::make_shared<BinaryFocal>(options), options.reduction);
}

Loss CategoricalFocalCrossentropy(const CategoricalFocalCrossentropyOptions& options) {
  return Loss(std::make_shared<CategoricalFocal>(options), options.reduction);
}

}  // namespace cohort
