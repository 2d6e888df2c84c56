// The loops: over the rounds of a training, of which fit() and Controller are two presets; over the steps of a round,
// for fit() and ModelTrainer; over the batches of an evaluation or a prediction; over the checkpoints that another
// process writes.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>

#include "cohort/checkpoint.h"
#include "cohort/train/model.h"
#include "train/loop/events.h"
#include "train/loop/input.h"
#include "train/model/model_state.h"
#include "train/model/progress_bar.h"

namespace cohort {

// The decisions and the work of a preset of run_rounds(). A round is an epoch of fit() or an inner loop of a
// Controller.
class Rounds {
 public:
  virtual ~Rounds() = default;

  // Called once, after the listeners of kTrainBegin, who may have restored a checkpoint.
  virtual void prepare() {}
  // Prepares the next round. Returns false if there is none.
  virtual bool begin_round() = 0;
  // Makes the steps of the round and returns what they measured.
  virtual Logs train() = 0;
  // Returns whether a listener of kStepsEnd has gone back to an earlier checkpoint, so that this round does not count.
  virtual bool went_back() const { return false; }
  // Returns whether the moment is due in this round; asked for kSummary, kEvaluationBegin and kCheckpoint.
  virtual bool due(Moment moment) const = 0;
  // Evaluates, and tells the listeners of it. May add to the logs of the round.
  virtual void evaluate(Logs& logs) = 0;
  // Called before and after the listeners of kRoundEnd.
  virtual void complete_round() {}
  virtual void end_round(const Logs& /*logs*/) {}
  // Does what ends the training, before the listeners hear of it.
  virtual void finish() {}
};

// Trains by rounds and tells the listeners of every moment. Returns the logs of the last round, which are empty if
// there was none.
Logs run_rounds(Rounds& rounds, const Listeners& listeners);

inline constexpr int64_t kUntilTheEnd = std::numeric_limits<int64_t>::max();  // steps until the input ends

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
  std::string title = {};                // the title of the progress
  int64_t steps = 0;                     // batches to evaluate; 0: all
  const Listeners* listeners = nullptr;  // null: nobody is told
  ProgressBar* progress = nullptr;       // null: no progress is shown
  RunInfo* run = nullptr;
  std::function<bool()> interrupt = {};  // asked before every batch; true on any worker ends it on all
};

// Evaluates a pass over the data and returns the logs, or nullopt if it was interrupted. InvalidArgument: there is no
// data.
std::optional<Logs> evaluate_on(ModelState& state, const DistributedDataset& data, const EvaluationRun& evaluation);

// Returns all outputs by name for the examples of a pass over the data, in their order, on the CPU.
NamedTensors run_predict(Model& model, ModelState& state, const Dataset& data, const PredictOptions& options);

// Calls load() and evaluate() for every checkpoint that comes, until no more will come or evaluate() returns false. A
// damaged checkpoint is left out with a warning, which the `speaker` opens; one that its writer has removed meanwhile
// is left out without a warning. Returns the number of evaluations.
int64_t evaluate_checkpoints(CheckpointFollower& checkpoints, const std::string& speaker,
                             const std::function<void(const std::filesystem::path&)>& load,
                             const std::function<bool()>& evaluate);

// Trains by epochs, with Keras' callbacks.
History run_fit(Model& model, ModelState& state, const Dataset& data, const FitOptions& options);

}  // namespace cohort
