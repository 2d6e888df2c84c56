#include <ATen/Functions.h>

#include <cmath>

#include "cohort/train/metrics.h"
#include "train/losses/support.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

namespace {

class RootMeanSquare final : public MeanMetric {
 public:
  explicit RootMeanSquare(const std::string& name)
      : MeanMetric(name, Direction::kDown, [speaker = "[metrics] " + name](const auto& y, const auto& prediction) {
          return at::square(prediction - fit_target(speaker, y, prediction));
        }) {}
  double result(const torch::Tensor& total) const override { return std::sqrt(mean_result(total)); }
};

}  // namespace

Metric RootMeanSquaredError(const RootMeanSquaredErrorOptions& options) {
  return Metric(std::make_shared<RootMeanSquare>(options.name));
}

}  // namespace cohort
