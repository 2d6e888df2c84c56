// Metrics that count true and false positives: precision, recall, the area under a curve.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/train/metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

// Weights of all values, flat, float64; undefined when all are 1.
torch::Tensor flat_weights(const std::string& speaker, const torch::Tensor& weight, const torch::Tensor& values) {
  if (!weight.defined()) return weight;
  return fit_weight(speaker, weight, values).expand_as(values).reshape({-1}).to(torch::kDouble);
}

torch::Tensor count(const torch::Tensor& mask, const torch::Tensor& weights) {
  return weights.defined() ? (mask * weights).sum() : mask.sum();
}

// True positives over those predicted (precision) or those there are (recall).
class PositiveRate final : public MetricRule {
 public:
  PositiveRate(std::string name, double threshold, std::optional<int64_t> class_id, bool of_predicted)
      : name_(std::move(name)),
        speaker_("[metrics] " + name_),
        threshold_(threshold),
        class_id_(class_id),
        of_predicted_(of_predicted) {}

  const std::string& name() const override { return name_; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return 2; }

  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    torch::Tensor target = fit_target(speaker_, y, prediction).to(torch::kBool);
    torch::Tensor positive = prediction.gt(threshold_);
    if (class_id_) {
      if (*class_id_ < 0 || prediction.dim() < 2 || *class_id_ >= prediction.size(-1)) {
        fail<InvalidArgument>(speaker_, ": class_id ", *class_id_, " of a prediction of shape ", prediction.sizes());
      }
      target = target.select(-1, *class_id_);
      positive = positive.select(-1, *class_id_);
    }
    const torch::Tensor weights = flat_weights(speaker_, weight, positive.to(torch::kDouble));
    target = target.reshape({-1});
    positive = positive.reshape({-1});
    state.add(0, count(target.logical_and(positive), weights));
    state.add(1, count(of_predicted_ ? positive : target, weights));
  }
  double result(const torch::Tensor& total) const override { return mean_result(total); }

 private:
  std::string name_;
  std::string speaker_;
  double threshold_;
  std::optional<int64_t> class_id_;
  bool of_predicted_;
};

// Confusion counts at every threshold, the lowest first.
struct Curve {
  std::vector<double> tp, fp;
  double positives = 0.0, negatives = 0.0;
};

// State: weights of the positive examples in each bucket between two thresholds, then of the negative ones. The counts
// at a threshold are the sums of all buckets from it on.
class AreaUnderCurve final : public MetricRule {
 public:
  explicit AreaUnderCurve(AucOptions options) : options_(std::move(options)), speaker_("[metrics] " + options_.name) {
    if (options_.num_thresholds < 2) {
      fail<InvalidArgument>(speaker_, ": num_thresholds must be at least 2, got ", options_.num_thresholds);
    }
  }

  const std::string& name() const override { return options_.name; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return 2 * options_.num_thresholds; }

  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    if (prediction.numel() == 0) return;
    const torch::Tensor target = fit_target(speaker_, y, prediction).reshape({-1}).to(torch::kBool);
    const torch::Tensor weights = flat_weights(speaker_, weight, prediction);
    torch::Tensor p = prediction.reshape({-1});
    p = at::nan_to_num(options_.from_logits ? p.sigmoid() : p, 0.0).clamp(0.0, 1.0);
    // Bucket i holds the predictions in (threshold i, threshold i + 1]; 0 is above the first threshold, just below
    // zero.
    const int64_t buckets = options_.num_thresholds;
    torch::Tensor index = at::ceil(p * static_cast<double>(buckets - 1)).sub(1).clamp_min(0).to(torch::kLong);
    index = index + target.logical_not().to(torch::kLong) * buckets;
    torch::Tensor sums = torch::zeros({2 * buckets}, p.options().dtype(torch::kDouble));
    sums.index_add_(0, index, weights.defined() ? weights : torch::ones({p.numel()}, sums.options()));
    state.add_range(0, sums);
  }

  double result(const torch::Tensor& total) const override {
    const Curve curve = curve_of(total);
    if (options_.curve == AucCurve::kPr && options_.summation == AucSummation::kInterpolation) {
      return interpolated_pr(curve);
    }
    double area = 0.0;
    for (std::size_t i = 0; i + 1 < curve.tp.size(); ++i) {
      const auto [x0, y0] = point(curve, i);
      const auto [x1, y1] = point(curve, i + 1);
      area += (x0 - x1) * height(y0, y1);
    }
    return area;
  }

 private:
  Curve curve_of(const torch::Tensor& total) const {
    const auto buckets = static_cast<std::size_t>(options_.num_thresholds);
    const double* sums = total.data_ptr<double>();
    Curve curve;
    curve.tp.resize(buckets);
    curve.fp.resize(buckets);
    for (std::size_t i = buckets; i-- > 0;) {
      curve.tp[i] = curve.positives += sums[i];
      curve.fp[i] = curve.negatives += sums[buckets + i];
    }
    return curve;
  }

  // ROC: (false positive rate, recall). PR: (recall, precision).
  std::pair<double, double> point(const Curve& curve, std::size_t i) const {
    const double recall = ratio(curve.tp[i], curve.positives);
    if (options_.curve == AucCurve::kRoc) return {ratio(curve.fp[i], curve.negatives), recall};
    return {recall, ratio(curve.tp[i], curve.tp[i] + curve.fp[i])};
  }

  double height(double one, double two) const {
    switch (options_.summation) {
      case AucSummation::kInterpolation:
        return (one + two) / 2.0;
      case AucSummation::kMinoring:
        return std::min(one, two);
      case AucSummation::kMajoring:
        return std::max(one, two);
    }
    return 0.0;
  }

  // Between two thresholds true positives grow linearly with positives, so precision does not: Davis and Goadrich, "The
  // relationship between precision-recall and ROC curves" (2006), integrated as in Keras.
  static double interpolated_pr(const Curve& curve) {
    double area = 0.0;
    for (std::size_t i = 0; i + 1 < curve.tp.size(); ++i) {
      const double p0 = curve.tp[i] + curve.fp[i], p1 = curve.tp[i + 1] + curve.fp[i + 1];
      const double gained = curve.tp[i] - curve.tp[i + 1];
      const double slope = ratio(gained, std::max(p0 - p1, 0.0));
      const double intercept = curve.tp[i + 1] - slope * p1;
      const double growth = p0 > 0.0 && p1 > 0.0 ? p0 / p1 : 1.0;
      area += ratio(slope * (gained + intercept * std::log(growth)), curve.positives);
    }
    return area;
  }

  AucOptions options_;
  std::string speaker_;
};

}  // namespace

Metric Precision(const PrecisionOptions& options) {
  return Metric(
      std::make_shared<PositiveRate>(options.name, options.threshold, options.class_id, /*of_predicted=*/true));
}

Metric Recall(const RecallOptions& options) {
  return Metric(
      std::make_shared<PositiveRate>(options.name, options.threshold, options.class_id, /*of_predicted=*/false));
}

Metric AUC(const AucOptions& options) {
  return Metric(std::make_shared<AreaUnderCurve>(options));
}

}  // namespace cohort
