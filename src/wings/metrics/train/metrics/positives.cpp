// Precision, recall, and the four counts that they are made of, at one threshold or at several.
#include <cmath>
#include <limits>
#include <numeric>

#include "base/fail.h"
#include "cohort/train/more_metrics.h"
#include "train/metrics/mean_metric.h"
#include "wings/metrics/train/metrics/confusion.h"

namespace cohort {

namespace {

using OfConfusion = double (*)(const Confusion& at);

// A number of the confusion counts at each threshold.
class AtThresholds final : public MetricRule {
 public:
  AtThresholds(std::string name, Direction direction, ConfusionCounts::Options options, OfConfusion number)
      : name_(std::move(name)), direction_(direction), counts_(std::move(options)), number_(number) {}

  const std::string& name() const override { return name_; }
  Direction direction() const override { return direction_; }
  int64_t state_size() const override { return counts_.state_size(); }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    counts_.update(state, y, prediction, weight);
  }
  double result(const torch::Tensor& total) const override {
    const std::vector<double> all = results(total);
    return std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  }
  std::vector<double> results(const torch::Tensor& total) const override {
    std::vector<double> numbers;
    for (const Confusion& at : counts_.counts(total)) numbers.push_back(number_(at));
    return numbers;
  }

 private:
  std::string name_;
  Direction direction_;
  ConfusionCounts counts_;
  OfConfusion number_;
};

std::vector<double> thresholds_of(const std::string& name, double threshold, const std::vector<double>& several) {
  std::vector<double> thresholds = several.empty() ? std::vector<double>{threshold} : several;
  for (const double each : thresholds) {
    if (std::isnan(each)) fail<InvalidArgument>("[metrics] ", name, ": a threshold is NaN");
  }
  return thresholds;
}

// With top_k and no threshold asked for, all of the k highest predictions are positive.
template <typename Options>
Metric positive_rate(const Options& options, OfConfusion number) {
  const double otherwise = options.top_k ? std::numeric_limits<double>::lowest() : 0.5;
  const double threshold = options.threshold.value_or(otherwise);
  if (options.threshold && !options.thresholds.empty()) {
    fail<InvalidArgument>("[metrics] ", options.name, ": threshold and thresholds are both given");
  }
  return Metric(std::make_shared<AtThresholds>(
      options.name, Direction::kUp,
      ConfusionCounts::Options{.speaker = "[metrics] " + options.name,
                               .thresholds = thresholds_of(options.name, threshold, options.thresholds),
                               .class_id = options.class_id,
                               .top_k = options.top_k},
      number));
}

Metric count_of(const ConfusionCountOptions& options, const char* otherwise, Direction direction, OfConfusion number) {
  const std::string name = options.name.empty() ? otherwise : options.name;
  return Metric(std::make_shared<AtThresholds>(
      name, direction,
      ConfusionCounts::Options{.speaker = "[metrics] " + name,
                               .thresholds = thresholds_of(name, 0.5, options.thresholds)},
      number));
}

}  // namespace

Metric Precision(const PrecisionOptions& options) {
  return positive_rate(options, [](const Confusion& at) { return ratio(at.tp, at.tp + at.fp); });
}

Metric Recall(const RecallOptions& options) {
  return positive_rate(options, [](const Confusion& at) { return ratio(at.tp, at.tp + at.fn); });
}

Metric TruePositives(const ConfusionCountOptions& options) {
  return count_of(options, "true_positives", Direction::kUp, [](const Confusion& at) { return at.tp; });
}

Metric TrueNegatives(const ConfusionCountOptions& options) {
  return count_of(options, "true_negatives", Direction::kUp, [](const Confusion& at) { return at.tn; });
}

Metric FalsePositives(const ConfusionCountOptions& options) {
  return count_of(options, "false_positives", Direction::kDown, [](const Confusion& at) { return at.fp; });
}

Metric FalseNegatives(const ConfusionCountOptions& options) {
  return count_of(options, "false_negatives", Direction::kDown, [](const Confusion& at) { return at.fn; });
}

}  // namespace cohort
