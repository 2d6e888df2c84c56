// Schedule: the learning rate as a function of the step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cohort {

// A value; steps count from 0 (the first update uses schedule(0)). Thread-safe.
class Schedule {
 public:
  // A constant rate; implicit, so that {.learning_rate = 1e-3} reads well.
  Schedule(double constant = 0.0);  // NOLINT(google-explicit-constructor)
  Schedule(std::string name, std::function<double(int64_t step)> fn);

  double operator()(int64_t step) const { return fn_ ? fn_(step) : constant_; }
  bool is_constant() const { return !fn_; }
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
  double initial_learning_rate = 0.1;
  int64_t decay_steps = 1000;
  double decay_rate = 0.96;
  bool staircase = false;  // decay in steps of decay_steps instead of smoothly
};
struct CosineDecayOptions {
  double initial_learning_rate = 0.1;
  int64_t decay_steps = 1000;
  double alpha = 0.0;  // the rate at the end, as a fraction of the initial one
};
struct PolynomialDecayOptions {
  double initial_learning_rate = 0.1;
  int64_t decay_steps = 1000;
  double end_learning_rate = 1e-4;
  double power = 1.0;
  bool cycle = false;  // start again, stretched, each time decay_steps is passed
};
struct LinearWarmupOptions {
  int64_t warmup_steps = 1000;
  double warmup_learning_rate = 0.0;  // at step 0
  Schedule after;                     // followed from warmup_steps on, counted from 0 there
};

// As Keras' schedules of the same names. Wrong numbers: InvalidArgument.
Schedule PiecewiseConstantDecay(const PiecewiseConstantDecayOptions& options);
Schedule ExponentialDecay(const ExponentialDecayOptions& options);
Schedule CosineDecay(const CosineDecayOptions& options);
Schedule PolynomialDecay(const PolynomialDecayOptions& options);
Schedule LinearWarmup(const LinearWarmupOptions& options);

}  // namespace cohort
