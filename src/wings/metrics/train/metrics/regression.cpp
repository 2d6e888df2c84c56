// Metrics of numbers that are not the mean of a loss.
// The scores of a result are on the CPU, and are read by a pointer.
#include <ATen/Functions.h>

#include <cmath>
#include <numeric>

#include "base/fail.h"
#include "cohort/train/more_losses.h"
#include "cohort/train/more_metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

class RootMeanSquare final : public MeanMetric {
 public:
  explicit RootMeanSquare(const std::string& name)
      : MeanMetric(name, Direction::kDown, [speaker = "[metrics] " + name](const auto& y, const auto& prediction) {
          const Fitted fitted = fit_values(speaker, y, prediction);
          return at::square(fitted.prediction - fitted.target);
        }) {}
  double result(const torch::Tensor& total) const override { return std::sqrt(mean_result(total)); }
};

// The coefficient of determination. Its state: for each output the sums of the targets, of their squares, of the
// squared errors and of the weights, and at the end the number of values.
class Determination final : public MetricRule {
 public:
  explicit Determination(R2ScoreOptions options)
      : options_(std::move(options)), speaker_("[metrics] " + options_.name) {
    if (options_.num_regressors >= 0) return;
    fail<InvalidArgument>(speaker_, ": num_regressors must not be negative, got ", options_.num_regressors);
  }

  const std::string& name() const override { return options_.name; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return 0; }

  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    const torch::Tensor p = prediction.dim() == 1 ? prediction.unsqueeze(1) : prediction;
    if (p.dim() != 2) {
      fail<InvalidArgument>(speaker_, ": the prediction has shape ", prediction.sizes(), ", wanted [batch, outputs]");
    }
    const torch::Tensor target = fit_target(speaker_, y, p).to(torch::kDouble);
    torch::Tensor weights = at::ones_like(target);
    if (weight.defined()) weights = fit_weight(speaker_, weight, target).expand_as(target);
    const torch::Tensor sums = at::stack({target * weights, target * target * weights,
                                          at::square(target - p.to(torch::kDouble)) * weights, weights})
                                   .sum(1)
                                   .reshape({-1});
    state.require_size(sums.numel() + 1);
    state.add_range(0, sums);
    state.add(sums.numel(), static_cast<double>(target.numel()));
  }

  double result(const torch::Tensor& total) const override {
    const std::vector<double> all = results(total);
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  }

  std::vector<double> results(const torch::Tensor& total) const override {
    const auto values = total[-1].item<double>();
    const torch::Tensor sums = total.slice(0, 0, total.numel() - 1).view({4, -1});
    if (values == 0.0) return {0.0};
    const torch::Tensor mean = sums[0] / sums[3];
    const torch::Tensor variation = sums[1] - sums[0] * mean;
    torch::Tensor scores = 1.0 - sums[2] / variation;
    scores = scores.masked_fill(scores.isinf(), 0.0);
    switch (options_.class_aggregation) {
      case R2Aggregation::kUniformAverage:
        scores = scores.mean().view({1});
        break;
      case R2Aggregation::kVarianceWeightedAverage:
        scores = ((variation * scores).sum() / variation.sum()).view({1});
        break;
      case R2Aggregation::kNone:
        break;
    }
    // Adjusted for the number of variables that the predictions are made from, where there are enough values.
    const auto regressors = static_cast<double>(options_.num_regressors);
    if (regressors > 0.0 && regressors < values - 1.0) {
      scores = 1.0 - (1.0 - scores) * (values - 1.0) / (values - regressors - 1.0);
    }
    scores = scores.contiguous();
    return {scores.data_ptr<double>(), scores.data_ptr<double>() + scores.numel()};
  }

 private:
  R2ScoreOptions options_;
  std::string speaker_;
};

// Returns the values of a correlation of vectors along an axis, whose mean over the examples is the metric.
template <typename Compute>
Metric correlation(const std::string& name, int64_t axis, Compute compute) {
  const std::string speaker = "[metrics] " + name;
  if (axis == 0) fail<InvalidArgument>(speaker, ": axis is 0, the batch; wanted another dimension");
  return Metric(std::make_shared<MeanMetric>(
      name, Direction::kUp, [speaker, axis, compute](const torch::Tensor& y, const torch::Tensor& prediction) {
        require_classes(speaker, prediction, axis);
        const torch::Tensor target = fit_target(speaker, y, prediction);
        return compute(target - target.mean(axis, true), prediction - prediction.mean(axis, true),
                       (target.mean(axis, true) - prediction.mean(axis, true)).square(), axis);
      }));
}

torch::Tensor variance(const torch::Tensor& centered, int64_t axis) {
  return centered.square().mean(axis, /*keepdim=*/true);
}

}  // namespace

Metric RootMeanSquaredError(const RootMeanSquaredErrorOptions& options) {
  return Metric(std::make_shared<RootMeanSquare>(options.name));
}

Metric R2Score(const R2ScoreOptions& options) {
  return Metric(std::make_shared<Determination>(options));
}

Metric LogCoshError(const LogCoshErrorOptions& options) {
  return Metric(LogCosh({.name = options.name}));
}

Metric PearsonCorrelation(const PearsonCorrelationOptions& options) {
  return correlation(options.name, options.axis,
                     [](const torch::Tensor& y, const torch::Tensor& p, const torch::Tensor& /*apart*/, int64_t axis) {
                       const torch::Tensor one = y / (variance(y, axis).sqrt() + kKerasEpsilon);
                       const torch::Tensor two = p / (variance(p, axis).sqrt() + kKerasEpsilon);
                       return (one * two).mean(axis);
                     });
}

Metric ConcordanceCorrelation(const ConcordanceCorrelationOptions& options) {
  return correlation(options.name, options.axis,
                     [](const torch::Tensor& y, const torch::Tensor& p, const torch::Tensor& apart, int64_t axis) {
                       const torch::Tensor norm = variance(y, axis) + variance(p, axis) + apart;
                       return (2.0 * y * p / (norm + kKerasEpsilon)).mean(axis);
                     });
}

}  // namespace cohort
