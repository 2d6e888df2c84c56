// Exponential averages of the weights of a model over its training.
#pragma once

#include "cohort/mirrored.h"
#include "cohort/train/model_trainer.h"
#include "cohort/weights.h"

namespace cohort {

// The averages, on the first replica's device. Source: B. Polyak and A. Juditsky, "Acceleration of Stochastic
// Approximation by Averaging" (1992); the decay that grows is TensorFlow's (tf.train.ExponentialMovingAverage's
// num_updates).
class MovingAverage {
 public:
  // InvalidArgument: the decay is not in [0, 1), or the step is negative.
  explicit MovingAverage(const MovingAverageOptions& options);

  bool on() const { return options_.average_decay > 0.0; }
  bool started() const { return !averages_.empty(); }
  // Adds the weights to the averages; called after every step with its number, from 1.
  void update(const MirroredModule& module, int64_t step);
  // Returns the averages under the names of the weights, in the order of the module.
  const NamedTensors& averages() const { return averages_; }
  // Sets the averages to the weights.
  void begin(const MirroredModule& module);
  // Begins anew with the next update.
  void forget();
  // Sets the averages. InvalidArgument: one is missing or has another shape.
  void restore(const MirroredModule& module, const NamedTensors& averages);
  // Gives the module the averages and returns what it had.
  NamedTensors swap_into(const MirroredModule& module) const;

 private:
  NamedTensors followed(const MirroredModule& module) const;

  MovingAverageOptions options_;
  NamedTensors followed_;  // the first replica's own tensors, in the order of the averages
  NamedTensors averages_;
};

}  // namespace cohort
