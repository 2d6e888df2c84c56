// Exponential averages of the weights of a model over its training.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "cohort/mirrored.h"
#include "cohort/train/model_trainer.h"
#include "cohort/weights.h"

namespace cohort {

class ParameterLayout;

// An addition to averages within work that is noted to be done again.
struct AverageUpdate {
  const NamedTensors& averages;
  std::function<void()> add;
  // Returns the part of the weights in the averages after the step of a run. Nothing: the averages are gone.
  std::function<std::optional<double>()> weight;
};
// What makes such additions where devices of a wing record their work.
struct AverageRecorder {
  // Returns false, and has done nothing, if no function is being recorded on the calling thread.
  bool (*record)(const AverageUpdate& update);
};

// The averages, on the first replica's device, or on every replica's: where work is recorded, because all of them run
// one program, and where a layout cuts parameters, of which each replica averages its parts. Source: B. Polyak and A.
// Juditsky, "Acceleration of Stochastic Approximation by Averaging" (1992); the decay that grows is TensorFlow's
// (tf.train.ExponentialMovingAverage's num_updates).
class MovingAverage {
 public:
  // InvalidArgument: the decay is not in [0, 1), or the step is negative.
  // "everywhere": every replica has averages.
  MovingAverage(const MovingAverageOptions& options, bool everywhere);

  bool on() const { return options_.average_decay > 0.0; }
  bool started() const { return !copies_.empty(); }
  // Says the number of the step that follows, from 1. Before the first one the averages are zeros.
  void begin_step(const MirroredModule& module, int64_t step);
  // Adds the weights of a replica to its averages, at the end of each step. Within a function that is being recorded,
  // the decay is that of each run.
  void update(int local_id);
  // Does so for all replicas that have averages, after a step.
  void update();
  // Returns the averages under the names of the weights, in the order of the module. Those of cut parameters are put
  // together.
  NamedTensors averages() const;
  // Sets the averages to the weights.
  void begin(const MirroredModule& module);
  // Begins anew with the next update.
  void forget();
  // Sets the averages. InvalidArgument: one is missing or has another shape.
  void restore(const MirroredModule& module, const NamedTensors& averages);
  // Gives the module the averages and returns what it had.
  NamedTensors swap_into(const MirroredModule& module) const;

 private:
  // The averages of a replica.
  struct Copy {
    NamedTensors followed;  // the replica's own tensors, in the order of the averages
    NamedTensors averages;
  };

  NamedTensors followed(const torch::nn::Module& copy) const;
  // Returns the tensors of the first replica, in place of parts the wholes; `of` has those of each replica, in one
  // order.
  NamedTensors whole(const std::function<const NamedTensors&(const Copy&)>& of) const;
  static double weight(const MovingAverageOptions& options, int64_t step);

  MovingAverageOptions options_;
  bool everywhere_ = false;
  std::shared_ptr<const ParameterLayout> layout_;                 // of the module; null before begin()
  std::vector<Copy> copies_;                                      // one, or one a replica
  std::shared_ptr<int64_t> step_ = std::make_shared<int64_t>(0);  // recordings of steps may outlive this
};

}  // namespace cohort
