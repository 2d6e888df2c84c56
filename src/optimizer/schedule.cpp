#include "cohort/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/fail.h"

namespace cohort {

namespace {

void require_steps(const char* schedule, int64_t steps) {
  if (steps < 1) fail<InvalidArgument>("[schedule] ", schedule, ": decay_steps is ", steps, ", wanted 1 or more");
}

void require_not_below_zero(const char* schedule, const char* field, double value) {
  if (std::isfinite(value) && value >= 0.0) return;
  fail<InvalidArgument>("[schedule] ", schedule, ": ", field, " is ", value, ", wanted a number of 0 or more");
}

double ratio(int64_t step, int64_t steps) {
  return static_cast<double>(step) / static_cast<double>(steps);
}

}  // namespace

Schedule::Schedule(double constant) : constant_(constant) {}

Schedule::Schedule(std::string name, std::function<double(int64_t)> fn) : name_(std::move(name)), fn_(std::move(fn)) {
  if (!fn_) fail<InvalidArgument>("[schedule] ", name_, ": an empty function came, one of the step was wanted");
}

Schedule PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options) {
  if (options.values.size() != options.boundaries.size() + 1) {
    fail<InvalidArgument>("[schedule] PiecewiseConstantDecay: ", options.boundaries.size(), " boundaries need ",
                          options.boundaries.size() + 1, " values, got ", options.values.size());
  }
  for (std::size_t i = 0; i < options.boundaries.size(); ++i) {
    if (i == 0 || options.boundaries[i] > options.boundaries[i - 1]) continue;
    fail<InvalidArgument>("[schedule] PiecewiseConstantDecay: boundary ", options.boundaries[i], " follows ",
                          options.boundaries[i - 1], ", wanted increasing steps");
  }
  for (const double value : options.values) require_not_below_zero("PiecewiseConstantDecay", "a value", value);
  return {"PiecewiseConstantDecay", [options](int64_t step) {
            const auto at = std::lower_bound(options.boundaries.begin(), options.boundaries.end(), step);
            return options.values[static_cast<std::size_t>(at - options.boundaries.begin())];
          }};
}

Schedule ExponentialDecay(const ExponentialDecayOptions& options) {
  require_steps("ExponentialDecay", options.decay_steps);
  require_not_below_zero("ExponentialDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("ExponentialDecay", "decay_rate", options.decay_rate);
  return {"ExponentialDecay", [options](int64_t step) {
            double exponent = ratio(step, options.decay_steps);
            if (options.staircase) exponent = std::floor(exponent);
            return options.initial_learning_rate * std::pow(options.decay_rate, exponent);
          }};
}

Schedule CosineDecay(const CosineDecayOptions& options) {
  require_steps("CosineDecay", options.decay_steps);
  require_not_below_zero("CosineDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("CosineDecay", "alpha", options.alpha);
  return {"CosineDecay", [options](int64_t step) {
            const double fraction = ratio(std::min(step, options.decay_steps), options.decay_steps);
            const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * fraction));
            return options.initial_learning_rate * ((1.0 - options.alpha) * cosine + options.alpha);
          }};
}

Schedule PolynomialDecay(const PolynomialDecayOptions& options) {
  require_steps("PolynomialDecay", options.decay_steps);
  require_not_below_zero("PolynomialDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("PolynomialDecay", "end_learning_rate", options.end_learning_rate);
  require_not_below_zero("PolynomialDecay", "power", options.power);
  return {"PolynomialDecay", [options](int64_t step) {
            auto steps = static_cast<double>(options.decay_steps);
            auto at = static_cast<double>(step);
            if (options.cycle) {
              steps *= std::max(1.0, std::ceil(at / steps));
            } else {
              at = std::min(at, steps);
            }
            return (options.initial_learning_rate - options.end_learning_rate) *
                       std::pow(1.0 - at / steps, options.power) +
                   options.end_learning_rate;
          }};
}

Schedule LinearWarmup(const LinearWarmupOptions& options) {
  if (options.warmup_steps < 0) {
    fail<InvalidArgument>("[schedule] LinearWarmup: warmup_steps is ", options.warmup_steps, ", wanted 0 or more");
  }
  require_not_below_zero("LinearWarmup", "warmup_learning_rate", options.warmup_learning_rate);
  if (options.after.is_constant()) require_not_below_zero("LinearWarmup", "after", options.after(0));
  return {"LinearWarmup", [options](int64_t step) {
            if (step >= options.warmup_steps) return options.after(step - options.warmup_steps);
            const double fraction = ratio(step, options.warmup_steps);
            return options.warmup_learning_rate + fraction * (options.after(0) - options.warmup_learning_rate);
          }};
}

}  // namespace cohort
