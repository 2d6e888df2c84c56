// Losses of numbers: differences that are computed value by value, and the angle between vectors.
#include <ATen/Functions.h>

#include <cmath>

#include "base/fail.h"
#include "cohort/train/losses.h"
#include "train/losses/support.h"

namespace cohort {

namespace {

using Compute =
    std::function<torch::Tensor(const torch::Tensor& prediction, const torch::Tensor& target, int64_t reduction)>;

// A difference that LibTorch has a fused operation for.
class Regression final : public LossRule {
 public:
  Regression(std::string name, Compute compute)
      : name_(std::move(name)), speaker_("[losses] " + name_), compute_(std::move(compute)) {}

  const std::string& name() const override { return name_; }
  bool averages_last() const override { return true; }
  torch::Tensor values(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const Fitted fitted = fit_values(speaker_, y, prediction);
    return compute_(fitted.prediction, fitted.target, at::Reduction::None);
  }
  torch::Tensor sum(const torch::Tensor& y, const torch::Tensor& prediction) const override {
    const Fitted fitted = fit_values(speaker_, y, prediction);
    const torch::Tensor total = compute_(fitted.prediction, fitted.target, at::Reduction::Sum);
    const int64_t count = values_an_example(fitted.prediction);
    return count == 1 ? total : total / static_cast<double>(count);
  }

 private:
  std::string name_;
  std::string speaker_;
  Compute compute_;
};

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

Loss MeanSquaredError(const MeanSquaredErrorOptions& options) {
  return Loss(std::make_shared<Regression>(options.name,
                                           [](const auto& prediction, const auto& target, int64_t reduction) {
                                             return at::mse_loss(prediction, target, reduction);
                                           }),
              options.reduction);
}

Loss MeanAbsoluteError(const MeanAbsoluteErrorOptions& options) {
  return Loss(std::make_shared<Regression>(options.name,
                                           [](const auto& prediction, const auto& target, int64_t reduction) {
                                             return at::l1_loss(prediction, target, reduction);
                                           }),
              options.reduction);
}

Loss Huber(const HuberOptions& options) {
  const double delta = options.delta;
  if (!(delta > 0.0)) fail<InvalidArgument>("[losses] ", options.name, ": delta must be positive, got ", delta);
  return Loss(std::make_shared<Regression>(options.name,
                                           [delta](const auto& prediction, const auto& target, int64_t reduction) {
                                             return at::huber_loss(prediction, target, reduction, delta);
                                           }),
              options.reduction);
}

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
