// Schedule: the learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cohort {

// A value; steps count from 0 (the first update uses schedule(0)). Thread-safe, as far as the function is.
class Schedule {
 public:
  // A constant rate; implicit, so that {.learning_rate = 1e-3} reads well.
  Schedule(double constant = 0.0);  // NOLINT(google-explicit-constructor)
  // Any function of the step, of 0 or more; an empty one is an InvalidArgument.
  Schedule(std::string name, std::function<double(int64_t step)> fn);

  // Returns the rate of the step.
  double operator()(int64_t step) const { return fn_ ? fn_(step) : constant_; }
  // False for every function, also for one that always returns the same.
  bool is_constant() const { return !fn_; }
  // "constant", or the name of the function that made it: "CosineDecay".
  const std::string& name() const { return name_; }

 private:
  double constant_ = 0.0;
  std::string name_ = "constant";
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
  int64_t decay_steps = 1000;          // the rate stays at its end from there on
  double alpha = 0.0;                  // the rate at the end, as a fraction of the initial one
};
struct PolynomialDecayOptions {
  double initial_learning_rate = 0.1;  // the rate at step 0
  int64_t decay_steps = 1000;          // the rate stays at its end from there on, unless it cycles
  double end_learning_rate = 1e-4;     // the rate at decay_steps
  // 1: a straight line.
  double power = 1.0;
  bool cycle = false;  // past decay_steps, decay to the next multiple of decay_steps that the step has not passed
};
struct LinearWarmupOptions {
  int64_t warmup_steps = 1000;        // 0: none
  double warmup_learning_rate = 0.0;  // at step 0; from there in a straight line to after(0)
  // Followed from warmup_steps on, counted from 0 there, as in Keras' CosineDecay with warmup_steps. (Model Garden's
  // LinearWarmup goes on counting from the start instead.)
  Schedule after;
};

// As Keras' schedules of the same names (keras/optimizers/schedules/learning_rate_schedule.py), in float64. Rates that
// are negative or not finite, decay_steps below 1 and boundaries that do not fit are an InvalidArgument.
Schedule PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options);
// initial * decay_rate ^ (step / decay_steps).
Schedule ExponentialDecay(const ExponentialDecayOptions& options);
// initial * ((1 - alpha) * (1 + cos(pi * step / decay_steps)) / 2 + alpha) (Loshchilov and Hutter, SGDR, 2017).
Schedule CosineDecay(const CosineDecayOptions& options);
// (initial - end) * (1 - step / decay_steps) ^ power + end.
Schedule PolynomialDecay(const PolynomialDecayOptions& options);
// warmup_learning_rate + step / warmup_steps * (after(0) - warmup_learning_rate), then `after`.
Schedule LinearWarmup(const LinearWarmupOptions& options);

}  // namespace cohort
