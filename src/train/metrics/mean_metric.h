// Metrics that are a weighted mean of values.
#pragma once

#include <string>
#include <utility>

#include "cohort/train/metric.h"

namespace cohort {

// Adds sum(values * weight) to slot 0 and the sum of the weights (their number, without any) to slot 1.
void add_mean(MetricState& state, const std::string& speaker, const torch::Tensor& values, const torch::Tensor& weight);

// Returns the quotient, or 0 where the denominator is 0.
double ratio(double numerator, double denominator);
// Returns total[0] / total[1], or 0 where nothing was counted.
double mean_result(const torch::Tensor& total);

// The weighted mean of what a function gives for each example.
class MeanMetric : public MetricRule {
 public:
  MeanMetric(std::string name, Direction direction, Metric::Function values)
      : name_(std::move(name)), speaker_("[metrics] " + name_), direction_(direction), values_(std::move(values)) {}

  const std::string& name() const override { return name_; }
  Direction direction() const override { return direction_; }
  int64_t state_size() const override { return 2; }
  void update(MetricState& state, const torch::Tensor& y, const torch::Tensor& prediction,
              const torch::Tensor& weight) const override {
    add_mean(state, speaker_, values_(y, prediction), weight);
  }
  double result(const torch::Tensor& total) const override { return mean_result(total); }

 private:
  std::string name_;
  std::string speaker_;
  Direction direction_;
  Metric::Function values_;
};

}  // namespace cohort
