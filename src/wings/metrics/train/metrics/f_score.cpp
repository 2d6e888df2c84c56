// F-scores: weighted harmonic means of precision and recall, of each class or averaged over them.
// The scores of a result are on the CPU, and are read by a pointer.
#include <ATen/Functions.h>

#include <numeric>

#include "base/fail.h"
#include "cohort/train/more_metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

// Its state: the true positives of each class, the false positives, the false negatives and the weights of the targets.
class FScore final : public MetricRule {
 public:
  explicit FScore(FBetaScoreOptions options) : options_(std::move(options)), speaker_("[metrics] " + options_.name) {
    if (!(options_.beta > 0.0)) fail<InvalidArgument>(speaker_, ": beta must be positive, got ", options_.beta);
    const double threshold = options_.threshold.value_or(0.5);
    if (threshold > 0.0 && threshold <= 1.0) return;
    fail<InvalidArgument>(speaker_, ": threshold must be between 0 and 1, got ", threshold);
  }

  const std::string& name() const override { return options_.name; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return options_.average == ScoreAverage::kMicro ? 4 : 0; }

  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    if (prediction.dim() != 2) {
      fail<InvalidArgument>(speaker_, ": the prediction has shape ", prediction.sizes(), ", wanted [batch, classes]");
    }
    const torch::Tensor target = fit_target(speaker_, y, prediction).to(torch::kDouble);
    const torch::Tensor positive = decided(prediction).to(torch::kDouble);
    torch::Tensor weights = at::ones({prediction.size(0), 1}, target.options());
    if (weight.defined()) weights = fit_weight(speaker_, weight, target);
    const torch::Tensor hits = positive * target * weights;
    const torch::Tensor counts =
        at::stack({hits, positive * weights - hits, target * weights - hits, target * weights});
    const bool micro = options_.average == ScoreAverage::kMicro;
    const torch::Tensor sums = micro ? counts.flatten(1).sum(1) : counts.sum(1).reshape({-1});
    state.require_size(sums.numel());
    state.add_range(0, sums);
  }

  double result(const torch::Tensor& total) const override {
    const std::vector<double> all = results(total);
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  }

  std::vector<double> results(const torch::Tensor& total) const override {
    const torch::Tensor counts = total.view({4, -1});
    const torch::Tensor precision = counts[0] / (counts[0] + counts[1] + kKerasEpsilon);
    const torch::Tensor recall = counts[0] / (counts[0] + counts[2] + kKerasEpsilon);
    const double squared = options_.beta * options_.beta;
    torch::Tensor scores = precision * recall / (squared * precision + recall + kKerasEpsilon) * (1.0 + squared);
    if (options_.average == ScoreAverage::kWeighted) {
      scores = (scores * (counts[3] / (counts[3].sum() + kKerasEpsilon))).sum().view({1});
    } else if (options_.average != ScoreAverage::kNone) {
      scores = scores.mean().view({1});
    }
    return {scores.data_ptr<double>(), scores.data_ptr<double>() + scores.numel()};
  }

 private:
  // Returns which classes are predicted: those above the threshold, or without one the highest, unless it is 0.
  torch::Tensor decided(const torch::Tensor& prediction) const {
    if (options_.threshold) return prediction.gt(*options_.threshold);
    if (prediction.numel() == 0) return at::zeros_like(prediction, torch::kBool);
    return prediction.ge(prediction.amax(-1, /*keepdim=*/true)).logical_and(prediction.abs().gt(1e-9));
  }

  FBetaScoreOptions options_;
  std::string speaker_;
};

}  // namespace

Metric FBetaScore(const FBetaScoreOptions& options) {
  return Metric(std::make_shared<FScore>(options));
}

Metric F1Score(const F1ScoreOptions& options) {
  return FBetaScore({.average = options.average, .threshold = options.threshold, .name = options.name});
}

}  // namespace cohort
