#include "cohort/train/metrics.h"
#include "train/metrics/mean_metric.h"

namespace cohort {

Metric Mean(const MeanOptions& options) {
  return Metric(
      std::make_shared<MeanMetric>(options.name, Direction::kUnknown,
                                   [](const torch::Tensor& /*y*/, const torch::Tensor& values) { return values; }));
}

}  // namespace cohort
