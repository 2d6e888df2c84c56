// The best value of one rate among the thresholds at which another rate is high enough.
#include <algorithm>

#include "base/fail.h"
#include "cohort/train/more_metrics.h"
#include "train/metrics/mean_metric.h"
#include "wings/metrics/train/metrics/confusion.h"

namespace cohort {

namespace {

using Rate = double (*)(const Confusion& at);

double precision_at(const Confusion& at) {
  return ratio(at.tp, at.tp + at.fp);
}
double recall_at(const Confusion& at) {
  return ratio(at.tp, at.tp + at.fn);
}
double specificity_at(const Confusion& at) {
  return ratio(at.tn, at.tn + at.fp);
}

class OperatingPoint final : public MetricRule {
 public:
  // The largest `wanted` where `constrained` is at least `bound`.
  struct Question {
    Rate wanted;
    Rate constrained;
    double bound;
  };

  OperatingPoint(std::string name, Question question, ConfusionCounts counts)
      : name_(std::move(name)), question_(question), counts_(std::move(counts)) {}

  const std::string& name() const override { return name_; }
  Direction direction() const override { return Direction::kUp; }
  int64_t state_size() const override { return counts_.state_size(); }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    counts_.update(state, y, prediction, weight);
  }
  double result(const torch::Tensor& total) const override {
    double best = 0.0;
    for (const Confusion& at : counts_.counts(total)) {
      if (question_.constrained(at) >= question_.bound) best = std::max(best, question_.wanted(at));
    }
    return best;
  }

 private:
  std::string name_;
  Question question_;
  ConfusionCounts counts_;
};

Metric best_point(const std::string& name, const char* of, const OperatingPoint::Question& question,
                  int64_t num_thresholds, std::optional<int64_t> class_id) {
  if (!(question.bound >= 0.0 && question.bound <= 1.0)) {
    fail<InvalidArgument>("[metrics] ", name, ": ", of, " must be in [0, 1], got ", question.bound);
  }
  if (num_thresholds <= 0) {
    fail<InvalidArgument>("[metrics] ", name, ": num_thresholds must be positive, got ", num_thresholds);
  }
  const std::vector<double> thresholds =
      num_thresholds == 1 ? std::vector<double>{0.5} : even_thresholds(num_thresholds);
  return Metric(std::make_shared<OperatingPoint>(name, question,
                                                 ConfusionCounts({.speaker = "[metrics] " + name,
                                                                  .thresholds = thresholds,
                                                                  .evenly = num_thresholds > 1,
                                                                  .class_id = class_id})));
}

}  // namespace

Metric PrecisionAtRecall(const PrecisionAtRecallOptions& options) {
  return best_point(options.name, "recall", {precision_at, recall_at, options.recall}, options.num_thresholds,
                    options.class_id);
}

Metric RecallAtPrecision(const RecallAtPrecisionOptions& options) {
  return best_point(options.name, "precision", {recall_at, precision_at, options.precision}, options.num_thresholds,
                    options.class_id);
}

Metric SensitivityAtSpecificity(const SensitivityAtSpecificityOptions& options) {
  return best_point(options.name, "specificity", {recall_at, specificity_at, options.specificity},
                    options.num_thresholds, options.class_id);
}

Metric SpecificityAtSensitivity(const SpecificityAtSensitivityOptions& options) {
  return best_point(options.name, "sensitivity", {specificity_at, recall_at, options.sensitivity},
                    options.num_thresholds, options.class_id);
}

}  // namespace cohort
