// Controller: the outer loop of training, in the shape of TensorFlow Model Garden's Orbit. The inner loop, of
// steps_per_loop steps, is a Trainer's; between inner loops the Controller runs actions, writes checkpoints and
// summaries, and evaluates.
//
//   Controller controller({.trainer = trainer, .evaluator = trainer, .steps_per_loop = 100,
//                          .checkpoint_dir = "run", .checkpoint_interval = 1000});
//   controller.train_and_evaluate(10'000, kAllSteps, 1000);
//
// Steps are absolute: train(10'000) trains until the global step is 10,000, and nothing when it is. A Controller begins
// with the latest checkpoint that there is, so that a program that was interrupted goes on when it is started again:
// bit for bit, where the Trainer saves all that it needs. All workers of a strategy make the same calls.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cohort/checkpoint.h"
#include "cohort/strategy.h"
#include "cohort/train/callbacks.h"

namespace cohort {

inline constexpr int64_t kAllSteps = -1;  // the steps of an evaluation of all data

// The inner loop of a training. ModelTrainer (model_trainer.h) is that of a Model; derive from this class for a loop of
// your own. Its functions are called on all workers alike.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Returns the number of steps that all runs of the training have made.
  virtual int64_t global_step() const = 0;
  // Makes `steps` more steps, or fewer if it is told to end (end_when). Returns what it measured, with the "loss".
  virtual Logs train(int64_t steps) = 0;

  // Returns everything that is needed to go on from here. The chief's is written.
  virtual CheckpointData save() = 0;
  // Returns whether it has save_shards(), for ControllerOptions::sharded_checkpoints.
  virtual bool saves_shards() const { return false; }
  // As save(), but each worker returns what it has of the tensors, as shards, and its own bytes, and writes them.
  // Unimplemented: it does not.
  virtual CheckpointData save_shards();
  // Goes back to what save() returned. The chief is given the data, the others are given none, or the shards alone.
  // With keep_input the input stays where it is.
  virtual void restore(const CheckpointData& data, bool keep_input) = 0;

  // Sets a function that is asked between steps. If it returns true on any worker, train() and evaluations end early,
  // on all workers after the same step.
  virtual void end_when(std::function<bool()> /*told*/) {}
  // Returns whether train() or an evaluation has ended early for that.
  virtual bool told_to_end() const { return false; }
};

// The inner loop of an evaluation, which a program derives from.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Evaluates `steps` batches, or all with kAllSteps, and returns the logs. An Evaluator that is a Trainer, too, may
  // end early if it is told to end.
  virtual Logs evaluate(int64_t steps) = 0;
  // Takes over the weights of a checkpoint's folder and returns its step; for evaluate_continuously(). NotFound: it is
  // gone; DataLoss: it is damaged.
  virtual int64_t load(const std::filesystem::path& checkpoint) = 0;
};

class Controller;
class Listeners;
class WorkerCheckpoints;

// The argument that an action gets.
struct ActionInfo {
  Controller& controller;  // the controller that calls
  const Logs& logs;        // the logs of the inner loop or of the evaluation
  int64_t step;            // the global step
};

// A function that is called after every inner loop, or every evaluation, on all workers. One that decides by what it
// has seen before has a listener, whose state is a part of every checkpoint.
class Action {
 public:
  // Makes an action of a function. `listener` has the state that the function decides by; null if it has none.
  template <typename Fn>
  requires(!std::same_as<Fn, Action> && std::invocable<Fn&, const ActionInfo&>)
      Action(Fn fn, std::shared_ptr<Listener> listener = nullptr)  // NOLINT(google-explicit-constructor)
      : fn_(std::move(fn)), listener_(std::move(listener)) {}

  // Calls the function.
  void operator()(const ActionInfo& info) const { fn_(info); }
  // Returns the listener that has its state; null if it has none.
  const std::shared_ptr<Listener>& listener() const { return listener_; }

 private:
  std::function<void(const ActionInfo&)> fn_;
  std::shared_ptr<Listener> listener_;
};

struct ControllerOptions {
  std::shared_ptr<Trainer> trainer = nullptr;       // the inner loop of the training; null: nothing is trained
  std::shared_ptr<Evaluator> evaluator = nullptr;   // the inner loop of evaluations; null: nothing is evaluated
  std::optional<Strategy> strategy = std::nullopt;  // unset: the current one
  std::vector<Action> train_actions = {};           // called after every inner loop
  std::vector<Action> eval_actions = {};            // called after every evaluation
  // Called at the multiples of summary_interval, at which inner loops end, and when training is complete.
  std::vector<Action> summary_actions = {};
  int64_t summary_interval = 0;  // steps between summaries; 0: only when training is complete
  // Inner loops end at its multiples; at least 1 with a trainer. On devices of XLA an inner loop is one launch.
  int64_t steps_per_loop = 0;
  // The folder of the checkpoints, which the chief writes and reads. If it is empty there are none.
  std::filesystem::path checkpoint_dir = {};
  // Steps between checkpoints; inner loops end at its multiples. 0: only when training is complete.
  int64_t checkpoint_interval = 0;
  int64_t max_to_keep = 5;  // checkpoints that are kept; 0: all
  // With true, each worker writes the tensors that it has, and reads what it needs: no worker gathers parameters or
  // slots that the replicas share or that are cut. checkpoint_dir has to be on a file system that all workers reach.
  bool sharded_checkpoints = false;
  // Called first if there is no checkpoint; for weights from elsewhere.
  std::function<void()> init_fn = {};
  // Asked between steps: returns whether this machine is about to be taken away. Then a checkpoint is written and
  // Preempted is thrown.
  std::function<bool()> preempted = {};
};

// Used by one thread, in cross-replica context.
class Controller {
 public:
  // Restores the latest checkpoint, or calls init_fn. InvalidArgument: neither a trainer nor an evaluator; numbers out
  // of range; sharded checkpoints of a trainer that has none. FailedPrecondition: a worker does not see the directory
  // of sharded checkpoints.
  explicit Controller(ControllerOptions options);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  ~Controller();

  // Trains until the global step is `steps`. Returns the logs of the last inner loop, which are empty if there was
  // none. Without a checkpoint at completion, which is for a training that goes on in another way, those who follow the
  // checkpoints are not told of an end either.
  Logs train(int64_t steps, bool checkpoint_at_completion = true);
  // Evaluates `steps` batches, or all of the data, and returns the logs. InvalidArgument: `steps` is below 1.
  Logs evaluate(int64_t steps = kAllSteps);
  // Trains, and evaluates at every multiple of `eval_interval` steps (0: none), at which inner loops end, and at the
  // end. Returns the logs of the last evaluation. A run that was interrupted between a multiple and its evaluation
  // makes up for it.
  Logs train_and_evaluate(int64_t train_steps, int64_t eval_steps = kAllSteps, int64_t eval_interval = 0,
                          bool checkpoint_at_completion = true);
  // Evaluates every checkpoint that another process writes to `checkpoint_dir`, or the newest of those that came
  // meanwhile, until that process has trained to `train_steps` (0: until it says that it has finished). Returns the
  // number of evaluations. DeadlineExceeded: no checkpoint came for the timeout.
  int64_t evaluate_continuously(int64_t train_steps = 0, int64_t steps = kAllSteps,
                                std::chrono::milliseconds timeout = std::chrono::hours(1));

  // Ends training after the current inner loop, as if it were complete; for actions. A program that is started again on
  // a checkpoint of that end has nothing left to do in its first train() or train_and_evaluate().
  void stop() { stopping_ = true; }
  // Returns whether training ends after the current inner loop.
  bool stopping() const { return stopping_; }

  // Goes back to the latest checkpoint. Returns false if there is none. With keep_input the data goes on where it is.
  bool restore_checkpoint(bool keep_input = false);
  // Writes a checkpoint, unless one of this step is there already.
  void save_checkpoint();

  // Returns the strategy under which it trains.
  const Strategy& strategy() const { return strategy_; }

 private:
  class InnerLoops;

  void check() const;
  bool checkpoint_due() const;
  Logs evaluate_here(int64_t steps);
  void run(const std::vector<Action>& actions, const Logs& logs);
  void complete();
  [[noreturn]] void leave();

  ControllerOptions options_;
  Strategy strategy_;
  std::unique_ptr<Listeners> listeners_;            // the actions
  std::unique_ptr<WorkerCheckpoints> checkpoints_;  // null without checkpoint_dir or trainer
  bool stopping_ = false;
  bool was_stopped_ = false;  // the checkpoint that was restored says that training was stopped
  int64_t saved_step_ = -1;
  int64_t evaluated_step_ = -1;
};

}  // namespace cohort
