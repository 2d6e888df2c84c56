// Sums and means of what is predicted, without targets.
#include "base/fail.h"
#include "cohort/train/basic_metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

class SumMetric final : public MetricRule {
 public:
  explicit SumMetric(std::string name) : name_(std::move(name)), speaker_("[metrics] " + name_) {}

  const std::string& name() const override { return name_; }
  Direction direction() const override { return Direction::kUnknown; }
  int64_t state_size() const override { return 1; }
  void update(MetricState& state, const torch::Tensor& /*y*/, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    const torch::Tensor wide = prediction.to(torch::kDouble);
    state.add(0, (weight.defined() ? wide * fit_weight(speaker_, weight, wide) : wide).sum());
  }
  double result(const torch::Tensor& total) const override { return total[0].item<double>(); }

 private:
  std::string name_;
  std::string speaker_;
};

}  // namespace

Metric Mean(const MeanOptions& options) {
  return Metric(
      std::make_shared<MeanMetric>(options.name, Direction::kUnknown,
                                   [](const torch::Tensor& /*y*/, const torch::Tensor& values) { return values; }));
}

Metric Sum(const SumOptions& options) {
  return Metric(std::make_shared<SumMetric>(options.name));
}

}  // namespace cohort
