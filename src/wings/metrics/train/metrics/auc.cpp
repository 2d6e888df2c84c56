#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/train/more_metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"
#include "wings/metrics/train/metrics/confusion.h"

namespace cohort {

namespace {

// Thresholds from just below 0 to just above 1, so that all predictions are above the first and below the last.
std::vector<double> auc_thresholds(const AucOptions& options) {
  std::vector<double> thresholds = options.thresholds;
  if (thresholds.empty()) return even_thresholds(options.num_thresholds);
  std::sort(thresholds.begin(), thresholds.end());
  if (thresholds.front() < 0.0 || thresholds.back() > 1.0) {
    fail<InvalidArgument>("[metrics] ", options.name, ": thresholds must be in [0, 1], got ", thresholds.front(),
                          " to ", thresholds.back());
  }
  thresholds.insert(thresholds.begin(), 0.0);
  thresholds.push_back(1.0);
  return thresholds;
}

ConfusionCounts auc_counts(const AucOptions& options) {
  std::vector<double> thresholds = auc_thresholds(options);
  const bool even = are_even(thresholds);
  thresholds.front() = -kKerasEpsilon;
  thresholds.back() = 1.0 + kKerasEpsilon;
  return ConfusionCounts({.speaker = "[metrics] " + options.name,
                          .thresholds = std::move(thresholds),
                          .evenly = even,
                          .multi_label = options.multi_label,
                          .label_weights = options.multi_label ? std::vector<double>() : options.label_weights});
}

class AreaUnderCurve final : public MetricRule {
 public:
  explicit AreaUnderCurve(const AucOptions& options) : options_(checked(options)), counts_(auc_counts(options_)) {}

  const std::string& name() const override { return options_.name; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override {
    return options_.multi_label ? counts_.state_size(options_.num_labels) : counts_.state_size();
  }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    counts_.update(state, y, options_.from_logits ? prediction.sigmoid() : prediction, weight);
  }

  double result(const torch::Tensor& total) const override {
    if (!options_.multi_label) return area(counts_.counts(total));
    const int64_t labels = counts_.labels(total);
    double sum = 0.0, weights = 0.0;
    for (int64_t i = 0; i < labels; ++i) {
      const double weight =
          options_.label_weights.empty() ? 1.0 : options_.label_weights.at(static_cast<std::size_t>(i));
      sum += weight * area(counts_.counts(total, i));
      weights += weight;
    }
    return ratio(sum, weights);
  }

 private:
  static const AucOptions& checked(const AucOptions& options) {
    if (options.num_thresholds >= 2 || !options.thresholds.empty()) return options;
    fail<InvalidArgument>("[metrics] ", options.name, ": num_thresholds must be at least 2, got ",
                          options.num_thresholds);
  }

  double area(const std::vector<Confusion>& curve) const {
    if (options_.curve == AucCurve::kPr && options_.summation == AucSummation::kInterpolation) {
      return interpolated_pr(curve);
    }
    double area = 0.0;
    for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
      const auto [x0, y0] = point(curve[i]);
      const auto [x1, y1] = point(curve[i + 1]);
      area += (x0 - x1) * height(y0, y1);
    }
    return area;
  }

  // ROC: (false positive rate, recall). PR: (recall, precision).
  std::pair<double, double> point(const Confusion& at) const {
    const double recall = ratio(at.tp, at.tp + at.fn);
    if (options_.curve == AucCurve::kRoc) return {ratio(at.fp, at.fp + at.tn), recall};
    return {recall, ratio(at.tp, at.tp + at.fp)};
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
  static double interpolated_pr(const std::vector<Confusion>& curve) {
    double area = 0.0;
    for (std::size_t i = 0; i + 1 < curve.size(); ++i) {
      const Confusion &here = curve[i], &next = curve[i + 1];
      const double p0 = here.tp + here.fp, p1 = next.tp + next.fp;
      const double gained = here.tp - next.tp;
      const double slope = ratio(gained, std::max(p0 - p1, 0.0));
      const double intercept = next.tp - slope * p1;
      const double growth = p0 > 0.0 && p1 > 0.0 ? p0 / p1 : 1.0;
      area += ratio(slope * (gained + intercept * std::log(growth)), next.tp + next.fn);
    }
    return area;
  }

  AucOptions options_;
  ConfusionCounts counts_;
};

}  // namespace

Metric AUC(const AucOptions& options) {
  return Metric(std::make_shared<AreaUnderCurve>(options));
}

}  // namespace cohort
