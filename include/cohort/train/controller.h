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

inline constexpr int64_t kAllSteps = -1;  // of an evaluation

// The inner loop. Model's is ModelTrainer (model_trainer.h); derive for one of your own. Its calls are made on all
// workers alike.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Steps made since the beginning of the training, by all runs of it.
  virtual int64_t global_step() const = 0;
  // Makes so many more; fewer where it hears that it is to end (end_when). Returns what it measured, with the "loss".
  virtual Logs train(int64_t steps) = 0;

  // Everything that is needed to go on from here; the chief's counts.
  virtual CheckpointData save() = 0;
  // The chief's data; others are given none. With keep_input the input stays where it is, instead of going back.
  virtual void restore(const CheckpointData& data, bool keep_input) = 0;

  // What makes train() end early, on all workers after the same step, and an evaluation; asked between steps.
  virtual void end_when(std::function<bool()> /*told*/) {}
  // Whether train() has ended early for it, on any worker.
  virtual bool told_to_end() const { return false; }
};

// The inner loop of an evaluation, which a program derives from.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // kAllSteps: the whole data. One that is a Trainer, too, may end early where it hears that it is to end.
  virtual Logs evaluate(int64_t steps) = 0;
  // Takes over the weights of a checkpoint's folder and returns its step: for evaluate_continuously(). NotFound,
  // DataLoss: it is gone, or damaged.
  virtual int64_t load(const std::filesystem::path& checkpoint) = 0;
};

class Controller;

// What actions are given.
struct ActionInfo {
  Controller& controller;  // the controller that calls
  const Logs& logs;        // of the inner loop, or the evaluation
  int64_t step;            // the global one
};
// A function that is called after every inner loop, or every evaluation, on all workers. One that decides by what it
// has seen before has a listener, whose state is a part of every checkpoint.
class Action {
 public:
  // `listener`: who has the state that the function decides by; null: it has none.
  template <typename Fn>
  requires(!std::same_as<Fn, Action> && std::invocable<Fn&, const ActionInfo&>)
      Action(Fn fn, std::shared_ptr<Listener> listener = nullptr)  // NOLINT(google-explicit-constructor)
      : fn_(std::move(fn)), listener_(std::move(listener)) {}

  // Calls the function.
  void operator()(const ActionInfo& info) const { fn_(info); }
  // Returns who has its state; null where it has none.
  const std::shared_ptr<Listener>& listener() const { return listener_; }

 private:
  std::function<void(const ActionInfo&)> fn_;
  std::shared_ptr<Listener> listener_;
};

struct ControllerOptions {
  std::shared_ptr<Trainer> trainer = nullptr;       // this or
  std::shared_ptr<Evaluator> evaluator = nullptr;   // this, or both
  std::optional<Strategy> strategy = std::nullopt;  // unset: the current one
  std::vector<Action> train_actions = {};           // called after every inner loop
  std::vector<Action> eval_actions = {};            // called after every evaluation
  // Called at the multiples of summary_interval, where inner loops end, too, and when training is complete.
  std::vector<Action> summary_actions = {};
  int64_t summary_interval = 0;  // steps between summaries; 0: only when training is complete
  int64_t steps_per_loop = 0;    // needed with a trainer; inner loops end at its multiples
  // Empty: no checkpoints. Of several workers the chief writes and reads.
  std::filesystem::path checkpoint_dir = {};
  // Steps; inner loops end at its multiples, too. 0: only when training is complete.
  int64_t checkpoint_interval = 0;
  int64_t max_to_keep = 5;  // checkpoints; 0: all
  // Where there is no checkpoint, before anything else: for weights from elsewhere.
  std::function<void()> init_fn = {};
  // A sign that this machine is about to be taken away, asked between steps: then a checkpoint is written and Preempted
  // thrown.
  std::function<bool()> preempted = {};
};

// Used by one thread, in cross-replica context.
class Controller {
 public:
  // Restores the latest checkpoint, or calls init_fn. InvalidArgument: neither a trainer nor an evaluator; numbers out
  // of range.
  explicit Controller(ControllerOptions options);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  ~Controller();

  // Until the global step is `steps`; the logs of the last inner loop, empty when there was none. Without a checkpoint
  // at completion nobody is told of an end, either: for a training that goes on in another way.
  Logs train(int64_t steps, bool checkpoint_at_completion = true);
  // InvalidArgument: no steps, or fewer.
  Logs evaluate(int64_t steps = kAllSteps);
  // Evaluates at every multiple of `eval_interval` steps (0: only at the end), and at the end; inner loops are cut
  // there. The logs of the last evaluation. A run that was interrupted between a multiple and its evaluation makes up
  // for it.
  Logs train_and_evaluate(int64_t train_steps, int64_t eval_steps = kAllSteps, int64_t eval_interval = 0,
                          bool checkpoint_at_completion = true);
  // Every checkpoint that another process writes to `checkpoint_dir`, or the newest of those that came meanwhile, until
  // that has trained to `train_steps` (0: until it says that it has finished) or none comes for the timeout
  // (DeadlineExceeded). Returns how many there were.
  int64_t evaluate_continuously(int64_t train_steps = 0, int64_t steps = kAllSteps,
                                std::chrono::milliseconds timeout = std::chrono::hours(1));

  // For actions: ends training after the current inner loop, as if it were complete. The program that is started again
  // on a checkpoint of that end has nothing left to do in its first train() or train_and_evaluate().
  void stop() { stopping_ = true; }
  // Returns whether training ends after the current inner loop.
  bool stopping() const { return stopping_; }

  // False: there is none. With keep_input the data goes on where it is.
  bool restore_checkpoint(bool keep_input = false);
  // One of this step is there already: nothing.
  void save_checkpoint();

  // Returns the strategy under which it trains.
  const Strategy& strategy() const { return strategy_; }

 private:
  void check() const;
  Logs train_to(int64_t step, bool last, bool evaluation_follows);
  int64_t next_loop(int64_t limit) const;
  bool checkpoint_due() const;
  Logs evaluate_here(int64_t steps);
  void run(const std::vector<Action>& actions, const Logs& logs);
  void complete();
  [[noreturn]] void leave();

  ControllerOptions options_;
  Strategy strategy_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // the actions'
  std::unique_ptr<CheckpointManager> checkpoints_;    // the chief's
  bool stopping_ = false;
  bool was_stopped_ = false;  // in the checkpoint that was restored
  int64_t saved_step_ = -1;
  int64_t evaluated_step_ = -1;
};

}  // namespace cohort
