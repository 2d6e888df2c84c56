#include "cohort/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

void require_steps(const char* schedule, int64_t steps) {
  if (steps < 1) fail<InvalidArgument>("[schedule] ", schedule, ": ", steps, " steps, wanted 1 or more");
}

}  // namespace

Schedule::Schedule(double constant) : constant_(constant) {}

Schedule::Schedule(std::string name, std::function<double(int64_t)> fn) : name_(std::move(name)), fn_(std::move(fn)) {}

Schedule PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options) {
  if (options.values.size() != options.boundaries.size() + 1) {
    fail<InvalidArgument>("[schedule] PiecewiseConstantDecay: ", options.boundaries.size(), " boundaries need ",
                          options.boundaries.size() + 1, " values, got ", options.values.size());
  }
  if (!std::is_sorted(options.boundaries.begin(), options.boundaries.end())) {
    fail<InvalidArgument>("[schedule] PiecewiseConstantDecay: the boundaries must increase, got ", options.boundaries);
  }
  return {"PiecewiseConstantDecay", [options](int64_t step) {
            const auto at = std::lower_bound(options.boundaries.begin(), options.boundaries.end(), step);
            return options.values[static_cast<std::size_t>(at - options.boundaries.begin())];
          }};
}

Schedule ExponentialDecay(const ExponentialDecayOptions& options) {
  require_steps("ExponentialDecay", options.decay_steps);
  return {"ExponentialDecay", [options](int64_t step) {
            double exponent = static_cast<double>(step) / static_cast<double>(options.decay_steps);
            if (options.staircase) exponent = std::floor(exponent);
            return options.initial_learning_rate * std::pow(options.decay_rate, exponent);
          }};
}

Schedule CosineDecay(const CosineDecayOptions& options) {
  require_steps("CosineDecay", options.decay_steps);
  return {"CosineDecay", [options](int64_t step) {
            const double fraction =
                static_cast<double>(std::min(step, options.decay_steps)) / static_cast<double>(options.decay_steps);
            const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * fraction));
            return options.initial_learning_rate * ((1.0 - options.alpha) * cosine + options.alpha);
          }};
}

Schedule PolynomialDecay(const PolynomialDecayOptions& options) {
  require_steps("PolynomialDecay", options.decay_steps);
  return {"PolynomialDecay", [options](int64_t step) {
            auto steps = static_cast<double>(options.decay_steps);
            auto at = static_cast<double>(step);
            if (options.cycle) {
              steps *= std::max(1.0, std::ceil(at / steps));
            } else {
              at = std::min(at, steps);
            }
            return (options.initial_learning_rate - options.end_learning_rate) * std::pow(1.0 - at / steps, options.power) +
                   options.end_learning_rate;
          }};
}

Schedule LinearWarmup(const LinearWarmupOptions& options) {
  require_steps("LinearWarmup", options.warmup_steps);
  return {"LinearWarmup", [options](int64_t step) {
            if (step >= options.warmup_steps) return options.after(step - options.warmup_steps);
            const double fraction = static_cast<double>(step) / static_cast<double>(options.warmup_steps);
            return options.warmup_learning_rate + fraction * (options.after(0) - options.warmup_learning_rate);
          }};
}

}  // namespace cohort
