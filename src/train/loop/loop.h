// The loops: over the steps of a training, which fit() and ModelTrainer make by the same one; over the batches of an
// evaluation or a prediction; over the checkpoints that another process writes.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint.h"
#include "cohort/train/model.h"
#include "train/loop/input.h"
#include "train/model/model_state.h"
#include "train/model/progress_bar.h"

namespace cohort {

inline constexpr int64_t kUntilTheEnd = std::numeric_limits<int64_t>::max();  // of the input

// Functions that are called around every step, unless they are empty.
struct StepEvents {
  std::function<void()> begin = {};
  std::function<void()> end = {};
};

struct StepsDone {
  int64_t steps = 0;
  double examples_per_second = 0.0;
};

// Makes `most` training steps, or fewer if the input ends, somebody has stopped the training, or a worker is preempted;
// the input tells which. Returns when the devices have done them.
StepsDone run_steps(ModelState& state, TrainingInput& input, int64_t most, ProgressBar& progress,
                    const StepEvents& events);

struct EvaluationRun {
  std::string title = {};  // of the progress
  int64_t steps = 0;       // 0: all
  const std::vector<CallbackPtr>* callbacks = nullptr;
  ProgressBar* progress = nullptr;  // null: not shown
  RunInfo* run = nullptr;
  std::function<bool()> interrupt = {};  // asked before every batch; true on any worker ends it on all
};

// Makes a pass over the data in evaluation mode. Returns nullopt if it was interrupted. InvalidArgument: there is no
// data.
std::optional<Logs> evaluate_on(ModelState& state, const DistributedDataset& data, const EvaluationRun& evaluation);

// Returns all outputs by name for the examples of a pass over the data, in their order, on the CPU.
NamedTensors run_predict(ModelState& state, const Dataset& data, const PredictOptions& options);

// Calls load() and evaluate() for every checkpoint that comes, until no more will, or evaluate() returns false. One
// that is damaged is left out with a warning by the `speaker`; one that its writer has removed meanwhile, without.
// Returns the number of evaluations.
int64_t evaluate_checkpoints(CheckpointFollower& checkpoints, const std::string& speaker,
                             const std::function<void(const std::filesystem::path&)>& load,
                             const std::function<bool()>& evaluate);

// Trains by epochs, with Keras' callbacks.
History run_fit(Model& model, ModelState& state, const Dataset& data, const FitOptions& options);

}  // namespace cohort
