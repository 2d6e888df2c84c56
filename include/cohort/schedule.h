// Schedule: the learning rate as a function of the step.
#pragma once

#include <any>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {

// A value; steps count from 0 (the first update uses schedule(0)). Thread-safe, as far as the function is.
class Schedule {
 public:
  // A constant rate; implicit, so that {.learning_rate = 1e-3} reads well.
  Schedule(double constant = 0.0);  // NOLINT(google-explicit-constructor)
  // Any function of the step, of 0 or more (less under WithOffset()); an empty one is an InvalidArgument.
  Schedule(std::string name, std::function<double(int64_t step)> fn) : Schedule(std::move(name), {}, std::move(fn)) {}
  // The same with the options that it was made with, for files.
  Schedule(std::string name, std::any options, std::function<double(int64_t step)> fn);
  // The same under the name "function"; implicit, so that .learning_rate takes a lambda, but no number.
  template <typename Fn, typename = std::enable_if_t<!std::is_convertible_v<Fn, double>>,
            typename = std::enable_if_t<std::is_invocable_r_v<double, Fn&, int64_t>>>
  Schedule(Fn fn)  // NOLINT(google-explicit-constructor)
      : Schedule("function", std::function<double(int64_t)>(std::move(fn))) {}

  // Returns the rate of the step.
  double operator()(int64_t step) const { return fn_ ? fn_(step) : constant_; }
  // False for every function, also for one that always returns the same.
  bool is_constant() const { return !fn_; }
  // "constant", or the name of the function that made it: "CosineDecay".
  const std::string& name() const { return name_; }
  // Returns the struct of options of the function that made it; empty: no file can hold it.
  const std::any& options() const { return options_; }

 private:
  double constant_ = 0.0;
  std::string name_ = "constant";
  std::any options_ = {};
  std::function<double(int64_t)> fn_;
};

struct PiecewiseConstantDecayOptions {
  std::vector<int64_t> boundaries;  // steps, increasing; values[i] holds up to and including boundaries[i]
  std::vector<double> values;       // one more than boundaries
};
struct ExponentialDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 0
  int64_t decay_steps = 1000;          // the rate is multiplied by decay_rate in so many steps
  double decay_rate = 0.96;            // see decay_steps
  bool staircase = false;              // decay in steps of decay_steps instead of smoothly
};
struct CosineDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 0
  int64_t decay_steps = 1000;          // the rate stays at its end from there on, which begins after the warm-up
  double alpha = 0.0;                  // the rate at the end, as a fraction of the highest one
  // If it is set the rate first rises in a straight line from initial_learning_rate to this.
  std::optional<double> warmup_target = std::nullopt;
  int64_t warmup_steps = 0;  // only with warmup_target
};
struct CosineDecayRestartsOptions {
  double initial_learning_rate = 0.1;  // the rate at step 0
  int64_t first_decay_steps = 1000;    // the first restart
  double t_mul = 2.0;                  // every period is so many times as long as the one before; 1 or more
  double m_mul = 1.0;                  // and begins with so many times its rate
  double alpha = 0.0;                  // the least rate, as a fraction of the initial one
};
struct InverseTimeDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 0
  int64_t decay_steps = 1000;          // see InverseTimeDecay()
  double decay_rate = 0.5;             // see InverseTimeDecay()
  bool staircase = false;              // decay in steps of decay_steps instead of smoothly
};
struct PolynomialDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 0
  int64_t decay_steps = 1000;          // the rate stays at its end from there on, unless it cycles
  double end_learning_rate = 1e-4;     // the rate at decay_steps
  double power = 1.0;                  // 1: a straight line
  bool cycle = false;  // past decay_steps, decay to the next multiple of decay_steps that the step has not passed
};
struct LinearWarmupOptions {
  int64_t warmup_steps = 1000;        // 0: none
  double warmup_learning_rate = 0.0;  // the rate at step 0; from there in a straight line to the first rate of `after`
  Schedule after;                     // followed from warmup_steps on
  // The first step that `after` sees: 0, as in Keras' CosineDecay with warmup_steps, or with true warmup_steps, as in
  // Model Garden's LinearWarmup, which goes on counting from the start.
  bool counts_from_start = false;
};
struct PolynomialWarmupOptions {
  int64_t warmup_steps = 1000;  // 0: none
  double power = 1.0;           // 1: a straight line
  Schedule after;               // followed from warmup_steps on, without counting from 0 again
};
struct PowerDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 1 after the offset
  double power = -0.5;                 // the exponent of the step
};
struct PowerAndLinearDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 1 after the offset
  int64_t total_decay_steps = 1000;    // the rate is 0 from there on
  double power = -0.5;                 // the exponent of the step
  double linear_decay_fraction = 0.1;  // the last part of the steps, in which a straight line brings the rate to 0
  int64_t offset = 0;                  // steps before the first one that counts
};
struct PowerDecayWithOffsetOptions {
  double initial_learning_rate = 0.1;     // the rate at step 1 after the offset
  double power = -0.5;                    // the exponent of the step
  int64_t offset = 0;                     // steps before the first one that counts
  double pre_offset_learning_rate = 1e6;  // the rate until then, and the largest one later
};
struct StepCosineDecayOptions {
  std::vector<int64_t> boundaries;  // steps, increasing; period i goes from boundaries[i] to the next
  std::vector<double> values;       // the rates at them, as many; the last one stays
  int64_t offset = 0;               // steps before the first one that counts
};

// These are the schedules of the same names of Keras (keras/optimizers/schedules/learning_rate_schedule.py) and Model
// Garden (official/modeling/optimization/lr_schedule.py), in float64. Rates that are negative or not finite,
// decay_steps below 1 and boundaries that do not fit are an InvalidArgument.
Schedule PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options);
// initial * decay_rate ^ (step / decay_steps).
Schedule ExponentialDecay(const ExponentialDecayOptions& options);
// initial * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha) (Loshchilov and Hutter, SGDR, 2017).
Schedule CosineDecay(const CosineDecayOptions& options);
// (initial - end) * (1 - step / decay_steps) ^ power + end.
Schedule PolynomialDecay(const PolynomialDecayOptions& options);
// A cosine that starts anew at the end of each period (Loshchilov and Hutter, SGDR, 2017).
Schedule CosineDecayRestarts(const CosineDecayRestartsOptions& options);
// initial / (1 + decay_rate * step / decay_steps).
Schedule InverseTimeDecay(const InverseTimeDecayOptions& options);
// warmup_learning_rate + step / warmup_steps * (first rate of `after` - warmup_learning_rate), then `after`.
Schedule LinearWarmup(const LinearWarmupOptions& options);
// after(warmup_steps) * (max(step, 1) / warmup_steps) ^ power, then `after`.
Schedule PolynomialWarmup(const PolynomialWarmupOptions& options);
// initial * max(step, 1) ^ power: Model Garden's "power".
Schedule PowerDecay(const PowerDecayOptions& options);
// The same, and in the last part of the steps a straight line to 0: Model Garden's "power_linear".
Schedule PowerAndLinearDecay(const PowerAndLinearDecayOptions& options);
// A constant rate until the offset, then the power decay from there: Model Garden's "power_with_offset".
Schedule PowerDecayWithOffset(const PowerDecayWithOffsetOptions& options);
// A cosine from each value to the next, the first one from step 0 with the length of the second boundary's distance
// from the first: Model Garden's "step_cosine_with_offset", which gives NaN from the last boundary on.
Schedule StepCosineDecay(const StepCosineDecayOptions& options);
// schedule(step - offset), as Model Garden's offset in stepwise, exponential, polynomial and cosine rates.
Schedule WithOffset(const Schedule& schedule, int64_t offset);

}  // namespace cohort
