// Rates as functions of the step: Keras' schedules and Model Garden's. Each checks its options once and captures them.
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

void require_increasing(const char* schedule, const std::vector<int64_t>& boundaries) {
  for (std::size_t i = 1; i < boundaries.size(); ++i) {
    if (boundaries[i] > boundaries[i - 1]) continue;
    fail<InvalidArgument>("[schedule] ", schedule, ": boundary ", boundaries[i], " follows ", boundaries[i - 1],
                          ", wanted increasing steps");
  }
}

void require_not_below_zero(const char* schedule, const char* field, double value) {
  if (std::isfinite(value) && value >= 0.0) return;
  fail<InvalidArgument>("[schedule] ", schedule, ": ", field, " is ", value, ", wanted a number of 0 or more");
}

void require_warmup(const char* schedule, int64_t steps) {
  if (steps < 0) fail<InvalidArgument>("[schedule] ", schedule, ": warmup_steps is ", steps, ", wanted 0 or more");
}

void require_finite(const char* schedule, const char* field, double value) {
  if (!std::isfinite(value)) fail<InvalidArgument>("[schedule] ", schedule, ": ", field, " is ", value);
}

double ratio(int64_t step, int64_t steps) {
  return static_cast<double>(step) / static_cast<double>(steps);
}

// Returns a number that falls from 1 to 0 while the fraction goes from 0 to 1.
double half_cosine(double fraction) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * fraction));
}

// max(step, 1) ^ power.
double step_power(int64_t step, double power) {
  return std::pow(static_cast<double>(std::max<int64_t>(step, 1)), power);
}

}  // namespace

Schedule::Schedule(double constant) : constant_(constant) {}

Schedule::Schedule(std::string name, std::any options, std::function<double(int64_t)> fn)
    : name_(std::move(name)), options_(std::move(options)), fn_(std::move(fn)) {
  if (!fn_) fail<InvalidArgument>("[schedule] ", name_, ": an empty function came, one of the step was wanted");
}

Schedule PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options) {
  if (options.values.size() != options.boundaries.size() + 1) {
    fail<InvalidArgument>("[schedule] PiecewiseConstantDecay: ", options.boundaries.size(), " boundaries need ",
                          options.boundaries.size() + 1, " values, got ", options.values.size());
  }
  require_increasing("PiecewiseConstantDecay", options.boundaries);
  for (const double value : options.values) require_not_below_zero("PiecewiseConstantDecay", "a value", value);
  return {"PiecewiseConstantDecay", options, [options](int64_t step) {
            const auto at = std::lower_bound(options.boundaries.begin(), options.boundaries.end(), step);
            return options.values[static_cast<std::size_t>(at - options.boundaries.begin())];
          }};
}

Schedule ExponentialDecay(const ExponentialDecayOptions& options) {
  require_steps("ExponentialDecay", options.decay_steps);
  require_not_below_zero("ExponentialDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("ExponentialDecay", "decay_rate", options.decay_rate);
  return {"ExponentialDecay", options, [options](int64_t step) {
            double exponent = ratio(step, options.decay_steps);
            if (options.staircase) exponent = std::floor(exponent);
            return options.initial_learning_rate * std::pow(options.decay_rate, exponent);
          }};
}

Schedule CosineDecay(const CosineDecayOptions& options) {
  require_steps("CosineDecay", options.decay_steps);
  require_not_below_zero("CosineDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("CosineDecay", "alpha", options.alpha);
  require_warmup("CosineDecay", options.warmup_steps);
  if (options.warmup_target) {
    require_not_below_zero("CosineDecay", "warmup_target", *options.warmup_target);
  } else if (options.warmup_steps > 0) {
    fail<InvalidArgument>("[schedule] CosineDecay: warmup_steps is ", options.warmup_steps,
                          ", but there is no warmup_target to rise to");
  }
  const double highest = options.warmup_target.value_or(options.initial_learning_rate);
  return {"CosineDecay", options, [options, highest](int64_t step) {
            if (step < options.warmup_steps) {
              const double risen = ratio(step, options.warmup_steps);
              return options.initial_learning_rate + risen * (highest - options.initial_learning_rate);
            }
            const int64_t at = std::min(step - options.warmup_steps, options.decay_steps);
            return highest * ((1.0 - options.alpha) * half_cosine(ratio(at, options.decay_steps)) + options.alpha);
          }};
}

Schedule CosineDecayRestarts(const CosineDecayRestartsOptions& options) {
  require_steps("CosineDecayRestarts", options.first_decay_steps);
  require_not_below_zero("CosineDecayRestarts", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("CosineDecayRestarts", "m_mul", options.m_mul);
  require_not_below_zero("CosineDecayRestarts", "alpha", options.alpha);
  if (!(options.t_mul >= 1.0) || !std::isfinite(options.t_mul)) {
    fail<InvalidArgument>("[schedule] CosineDecayRestarts: t_mul is ", options.t_mul, ", wanted 1 or more");
  }
  return {"CosineDecayRestarts", options, [options](int64_t step) {
            // These are in periods of the first one's length: where the step is, where its period begins, how long that
            // is.
            const double at = ratio(step, options.first_decay_steps);
            constexpr double kRounding = 1e-9;
            double begin = 0.0;
            double length = 1.0;
            double restarts = 0.0;
            if (options.t_mul == 1.0) {
              begin = restarts = std::floor(at + kRounding);
            } else {
              for (; at - begin >= length - kRounding; length *= options.t_mul, ++restarts) begin += length;
            }
            const double cosine = std::pow(options.m_mul, restarts) * half_cosine((at - begin) / length);
            return options.initial_learning_rate * ((1.0 - options.alpha) * cosine + options.alpha);
          }};
}

Schedule InverseTimeDecay(const InverseTimeDecayOptions& options) {
  require_steps("InverseTimeDecay", options.decay_steps);
  require_not_below_zero("InverseTimeDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("InverseTimeDecay", "decay_rate", options.decay_rate);
  return {"InverseTimeDecay", options, [options](int64_t step) {
            double periods = ratio(step, options.decay_steps);
            if (options.staircase) periods = std::floor(periods);
            return options.initial_learning_rate / (1.0 + options.decay_rate * periods);
          }};
}

Schedule PolynomialDecay(const PolynomialDecayOptions& options) {
  require_steps("PolynomialDecay", options.decay_steps);
  require_not_below_zero("PolynomialDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("PolynomialDecay", "end_learning_rate", options.end_learning_rate);
  require_not_below_zero("PolynomialDecay", "power", options.power);
  return {"PolynomialDecay", options, [options](int64_t step) {
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
  require_warmup("LinearWarmup", options.warmup_steps);
  require_not_below_zero("LinearWarmup", "warmup_learning_rate", options.warmup_learning_rate);
  if (options.after.is_constant()) require_not_below_zero("LinearWarmup", "after", options.after(0));
  return {"LinearWarmup", [options](int64_t step) {
            const int64_t first = options.counts_from_start ? options.warmup_steps : 0;
            if (step >= options.warmup_steps) return options.after(step - options.warmup_steps + first);
            const double fraction = ratio(step, options.warmup_steps);
            return options.warmup_learning_rate + fraction * (options.after(first) - options.warmup_learning_rate);
          }};
}

Schedule PolynomialWarmup(const PolynomialWarmupOptions& options) {
  require_warmup("PolynomialWarmup", options.warmup_steps);
  require_not_below_zero("PolynomialWarmup", "power", options.power);
  if (options.after.is_constant()) require_not_below_zero("PolynomialWarmup", "after", options.after(0));
  return {"PolynomialWarmup", [options](int64_t step) {
            if (step >= options.warmup_steps) return options.after(step);
            const double fraction = ratio(std::max<int64_t>(step, 1), options.warmup_steps);
            return options.after(options.warmup_steps) * std::pow(fraction, options.power);
          }};
}

Schedule PowerDecay(const PowerDecayOptions& options) {
  require_not_below_zero("PowerDecay", "initial_learning_rate", options.initial_learning_rate);
  require_finite("PowerDecay", "power", options.power);
  return {"PowerDecay",
          [options](int64_t step) { return options.initial_learning_rate * step_power(step, options.power); }};
}

Schedule PowerAndLinearDecay(const PowerAndLinearDecayOptions& options) {
  require_steps("PowerAndLinearDecay", options.total_decay_steps);
  require_not_below_zero("PowerAndLinearDecay", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("PowerAndLinearDecay", "linear_decay_fraction", options.linear_decay_fraction);
  require_finite("PowerAndLinearDecay", "power", options.power);
  return {"PowerAndLinearDecay", [options](int64_t step) {
            const int64_t at = step - options.offset;
            const double rate = options.initial_learning_rate * step_power(at, options.power);
            const double line = static_cast<double>(options.total_decay_steps) * options.linear_decay_fraction;
            if (line == 0.0) return rate;
            const double left = static_cast<double>(options.total_decay_steps - at);
            return std::max(0.0, rate * std::min(1.0, left / line));
          }};
}

Schedule PowerDecayWithOffset(const PowerDecayWithOffsetOptions& options) {
  require_not_below_zero("PowerDecayWithOffset", "initial_learning_rate", options.initial_learning_rate);
  require_not_below_zero("PowerDecayWithOffset", "pre_offset_learning_rate", options.pre_offset_learning_rate);
  require_finite("PowerDecayWithOffset", "power", options.power);
  return {"PowerDecayWithOffset", [options](int64_t step) {
            if (step <= options.offset) return options.pre_offset_learning_rate;
            const double rate = options.initial_learning_rate * step_power(step - options.offset, options.power);
            return std::min(rate, options.pre_offset_learning_rate);
          }};
}

Schedule StepCosineDecay(const StepCosineDecayOptions& options) {
  if (options.values.empty() || options.values.size() != options.boundaries.size()) {
    fail<InvalidArgument>("[schedule] StepCosineDecay: ", options.boundaries.size(), " boundaries and ",
                          options.values.size(), " values came, wanted as many of each, and at least one");
  }
  require_increasing("StepCosineDecay", options.boundaries);
  for (const double value : options.values) require_not_below_zero("StepCosineDecay", "a value", value);
  return {"StepCosineDecay", [options](int64_t step) {
            const std::vector<int64_t>& starts = options.boundaries;
            const int64_t at = step - options.offset;
            if (at >= starts.back() || starts.size() == 1) return options.values.back();
            std::size_t period = starts.size() - 2;
            while (period > 0 && at < starts[period]) --period;
            const int64_t begin = period == 0 ? 0 : starts[period];
            const double next = options.values[period + 1];
            const double fraction = ratio(at - begin, starts[period + 1] - starts[period]);
            return next + (options.values[period] - next) * half_cosine(fraction);
          }};
}

Schedule WithOffset(const Schedule& schedule, int64_t offset) {
  if (schedule.is_constant() || offset == 0) return schedule;
  return {schedule.name(), [schedule, offset](int64_t step) { return schedule(step - offset); }};
}

}  // namespace cohort
