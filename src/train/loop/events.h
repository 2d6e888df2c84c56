// The moments of a training, and those who listen to it. Keras' callbacks and a Controller's actions are two faces of
// one list of listeners, which run_rounds() (loop.h) tells of every moment.
//
// The state by which a listener decides is a part of a checkpoint: values "<kind>.<name>.<key>" and a group of tensors
// "<kind>.<name>" each. Numbers tell several listeners of one name apart: "early_stopping", "early_stopping-2".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/checkpoint.h"
#include "cohort/train/callbacks.h"
#include "strategy/core.h"

namespace cohort {

// The moments of a training, in their order. A round is an epoch of fit() or an inner loop of a Controller.
enum class Moment {
  kTrainBegin,
  kRoundBegin,
  kStepBegin,
  kStepEnd,
  kStepsEnd,         // the steps of the round are made
  kSummary,          // a summary of them is due
  kEvaluationBegin,  // an evaluation, within the training or by itself
  kTestStepBegin,
  kTestStepEnd,
  kEvaluationEnd,
  kRoundEnd,
  kCheckpoint,  // a checkpoint of the whole training is due
  kTrainEnd,
  kPreemption,  // all workers leave the training after this step
  kPredictBegin,
  kPredictStepBegin,
  kPredictStepEnd,
  kPredictEnd,
};

inline constexpr const char* kCallbacks = "callback";
inline constexpr const char* kActions = "action";

// Those who listen to a training, in the order in which they are told.
class Listeners {
 public:
  // `kind`, kCallbacks or kActions, names their states in checkpoints.
  explicit Listeners(std::string kind) : kind_(std::move(kind)) {}

  // Adds a callback, which is given `run` at every moment that it has a function for.
  void add(const CallbackPtr& callback, const RunInfo& run);
  // Adds a function that is called at one moment, with the numbers that were measured by then.
  void add(Moment moment, std::function<void(const Logs&)> fn);
  // Adds the state by which one of the functions decides.
  void add_state(std::shared_ptr<Listener> listener) { states_.push_back(std::move(listener)); }

  // Tells everybody of the moment. At the ends of a step, of a round and of the training, and in a preemption,
  // listeners of a higher turn (Callback::turn) are told later. The next listeners see what one adds to the logs.
  void tell(Moment moment, Logs& logs) const { tell_all({.moment = moment, .logs = logs}); }
  void tell(Moment moment) const;
  void tell_step_end(const BatchLogs& batch, Moment moment = Moment::kStepEnd) const;

  // Adds the listeners' states to a checkpoint.
  void save(CheckpointData& data) const;
  // Gives the listeners their states. One whose state is not in the checkpoint is left alone.
  void load(const CheckpointData& data) const;
  // Returns, on all workers, the states in the chief's checkpoint, for load(). Collective.
  CheckpointData states_from_chief(const StrategyCore& core, const CheckpointData& data) const;

 private:
  struct News {
    Moment moment;
    Logs& logs;
    const BatchLogs* batch = nullptr;  // the logs at kStepEnd and kTestStepEnd
  };
  struct Hearer {
    int turn = 0;
    std::function<void(const News&)> hear;
  };

  void add(Hearer hearer);
  void tell_all(const News& news) const;
  std::vector<std::string> state_names() const;

  std::string kind_;
  std::vector<Hearer> in_order_;
  std::vector<Hearer> by_turn_;
  std::vector<std::shared_ptr<Listener>> states_;
};

// Returns a number as a text of a state, from which state_number() returns the same bits.
std::string state_text(double number);
std::string state_text(int64_t number);
// Returns the number of that key; nullopt if there is none.
std::optional<double> state_number(const CallbackState& state, const std::string& key);

}  // namespace cohort
