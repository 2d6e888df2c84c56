// Losses of numbers: differences that are computed value by value.
#include <ATen/Functions.h>

#include "base/fail.h"
#include "cohort/train/basic_losses.h"
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

}  // namespace

Loss MeanSquaredError(const MeanSquaredErrorOptions& options) {
  return Loss(made_with<Regression>(options, options.name,
                                    [](const auto& prediction, const auto& target, int64_t reduction) {
                                      return at::mse_loss(prediction, target, reduction);
                                    }),
              options.reduction);
}

Loss MeanAbsoluteError(const MeanAbsoluteErrorOptions& options) {
  return Loss(made_with<Regression>(options, options.name,
                                    [](const auto& prediction, const auto& target, int64_t reduction) {
                                      return at::l1_loss(prediction, target, reduction);
                                    }),
              options.reduction);
}

Loss Huber(const HuberOptions& options) {
  const double delta = options.delta;
  if (!(delta > 0.0)) fail<InvalidArgument>("[losses] ", options.name, ": delta must be positive, got ", delta);
  return Loss(made_with<Regression>(options, options.name,
                                    [delta](const auto& prediction, const auto& target, int64_t reduction) {
                                      return at::huber_loss(prediction, target, reduction, delta);
                                    }),
              options.reduction);
}

}  // namespace cohort
