// Losses of numbers: differences that are computed value by value, and the angle between vectors.
#include <ATen/Functions.h>

#include <cmath>

#include "cohort/train/more_losses.h"
#include "wings/metrics/train/losses/elementwise.h"

namespace cohort {

namespace {

class Cosine final : public LossRule {
 public:
  explicit Cosine(CosineSimilarityOptions options)
      : options_(std::move(options)), speaker_("[losses] " + options_.name) {
    check_mean_axis(options_.name, options_.axis);
  }

  const std::string& name() const override { return options_.name; }
  double metric_sign() const override { return -1.0; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    require_classes(speaker_, prediction, options_.axis);
    return -(direction(fit_target(speaker_, y, prediction)) * direction(prediction)).sum(options_.axis);
  }

 private:
  // Returns the vectors with length 1; one of length 0 stays what it is.
  torch::Tensor direction(const torch::Tensor& vectors) const {
    return vectors / vectors.norm(2, options_.axis, /*keepdim=*/true).clamp_min(kKerasEpsilon);
  }

  CosineSimilarityOptions options_;
  std::string speaker_;
};

template <typename Options>
Loss elementwise(const Options& options, ElementwiseLoss::Compute compute) {
  return Loss(std::make_shared<ElementwiseLoss>(options.name, ElementwiseLoss::Last::kMean, compute),
              options.reduction);
}

}  // namespace

Loss MeanAbsolutePercentageError(const MeanAbsolutePercentageErrorOptions& options) {
  return elementwise(options, [](const torch::Tensor& prediction, const torch::Tensor& target) {
    return 100.0 * ((target - prediction) / target.abs().clamp_min(kKerasEpsilon)).abs();
  });
}

Loss MeanSquaredLogarithmicError(const MeanSquaredLogarithmicErrorOptions& options) {
  return elementwise(options, [](const torch::Tensor& prediction, const torch::Tensor& target) {
    return at::square(prediction.clamp_min(kKerasEpsilon).log1p() - target.clamp_min(kKerasEpsilon).log1p());
  });
}

Loss LogCosh(const LogCoshOptions& options) {
  return elementwise(options, [](const torch::Tensor& prediction, const torch::Tensor& target) {
    const torch::Tensor difference = prediction - target;
    return difference + at::softplus(-2.0 * difference) - std::log(2.0);
  });
}

Loss Poisson(const PoissonOptions& options) {
  return elementwise(options, [](const torch::Tensor& prediction, const torch::Tensor& target) {
    return prediction - target * (prediction + kKerasEpsilon).log();
  });
}

Loss KLDivergence(const KLDivergenceOptions& options) {
  const auto divergence = [](const torch::Tensor& prediction, const torch::Tensor& target) {
    require_classes("[losses] KLDivergence", prediction, -1);
    const torch::Tensor p = target.clamp(kKerasEpsilon, 1.0);
    return (p * (p / prediction.clamp(kKerasEpsilon, 1.0)).log()).sum(-1);
  };
  return Loss(std::make_shared<ElementwiseLoss>(options.name, ElementwiseLoss::Last::kOwn, divergence),
              options.reduction);
}

Loss CosineSimilarity(const CosineSimilarityOptions& options) {
  return Loss(std::make_shared<Cosine>(options), options.reduction);
}

}  // namespace cohort
