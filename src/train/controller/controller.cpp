// Controller: the preset of run_rounds() whose rounds are inner loops of a Trainer and whose listeners are actions. An
// inner loop ends where anything is due, so that a run that goes on makes the same loops as one that was not
// interrupted.
#include "cohort/train/controller.h"

#include <algorithm>
#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/number_in.h"
#include "checkpoint/series.h"
#include "cohort/error.h"
#include "strategy/core.h"
#include "train/loop/events.h"
#include "train/loop/loop.h"
#include "train/loop/worker_checkpoints.h"

namespace cohort {

namespace {

// Values in checkpoints.
constexpr const char* kEvaluatedStep = "evaluated_step";
constexpr const char* kStoppedByAction = "stopped_by_action";  // absent: no

}  // namespace

// The inner loops of a training up to a step.
class Controller::InnerLoops final : public Rounds {
 public:
  struct Evaluations {
    int64_t steps = kAllSteps;
    int64_t interval = 0;  // 0: only at the end
  };

  InnerLoops(Controller& controller, int64_t end, std::optional<Evaluations> evaluations = std::nullopt)
      : controller_(controller), trainer_(*controller.options_.trainer), end_(end), evaluations_(evaluations) {}

  bool begin_round() override { return !controller_.stopping_ && trainer_.global_step() < end_; }

  Logs train() override {
    const int64_t before = trainer_.global_step();
    const int64_t steps = next_end(before) - before;
    Logs logs = trainer_.train(steps);
    reached_ = trainer_.global_step();
    if (trainer_.told_to_end()) controller_.leave();
    if (reached_ - before != steps) {
      fail<FailedPrecondition>("[controller] the trainer was to make ", steps,
                               " steps, but the global step went on by ", reached_ - before);
    }
    return logs;
  }

  bool went_back() const override { return trainer_.global_step() != reached_; }

  bool due(Moment moment) const override {
    const int64_t step = trainer_.global_step();
    const bool at_end = controller_.stopping_ || step >= end_;
    if (moment == Moment::kSummary) return at_end || is_multiple(step, controller_.options_.summary_interval);
    if (moment == Moment::kCheckpoint) return controller_.checkpoint_due();
    return moment == Moment::kEvaluationBegin && evaluations_ && step > 0 && controller_.evaluated_step_ != step &&
           (at_end || is_multiple(step, evaluations_->interval));
  }

  void evaluate(Logs& /*logs*/) override { evaluation_ = controller_.evaluate(evaluations_->steps); }
  void evaluate_if_due() {
    if (due(Moment::kEvaluationBegin)) evaluation_ = controller_.evaluate(evaluations_->steps);
  }
  // Returns the logs of the last evaluation, which are empty if there was none.
  const Logs& evaluation() const { return evaluation_; }

 private:
  static bool is_multiple(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

  // Returns where the inner loop ends that begins at the step.
  int64_t next_end(int64_t step) const {
    const ControllerOptions& options = controller_.options_;
    int64_t end = end_;
    for (const int64_t interval : {options.steps_per_loop, options.checkpoint_interval, options.summary_interval,
                                   evaluations_ ? evaluations_->interval : 0}) {
      if (interval > 0) end = std::min(end, (step / interval + 1) * interval);
    }
    return end;
  }

  Controller& controller_;
  Trainer& trainer_;
  int64_t end_;
  std::optional<Evaluations> evaluations_;
  int64_t reached_ = 0;  // the step at which the last inner loop ended
  Logs evaluation_;
};

CheckpointData Trainer::save_shards() {
  fail<Unimplemented>("[controller] the trainer does not return shards");
}

Controller::Controller(ControllerOptions options)
    : options_(std::move(options)),
      strategy_(options_.strategy ? *options_.strategy : current_strategy()),
      listeners_(std::make_unique<Listeners>(kActions)) {
  check();
  const auto listen = [this](Moment moment, const std::vector<Action>& actions) {
    listeners_->add(moment, [this, &actions](const Logs& logs) { run(actions, logs); });
    for (const Action& action : actions) {
      if (action.listener()) listeners_->add_state(action.listener());
    }
  };
  listen(Moment::kStepsEnd, options_.train_actions);
  listen(Moment::kEvaluationEnd, options_.eval_actions);
  listen(Moment::kSummary, options_.summary_actions);
  // An end to which an action has gone back is none.
  listeners_->add(Moment::kStepsEnd, [this](const Logs& /*logs*/) { was_stopped_ = false; });
  for (const Moment moment : {Moment::kCheckpoint, Moment::kPreemption}) {
    listeners_->add(moment, [this](const Logs& /*logs*/) { save_checkpoint(); });
  }
  if (!options_.trainer) return;
  if (options_.preempted) options_.trainer->end_when(options_.preempted);
  if (!options_.checkpoint_dir.empty()) {
    checkpoints_ = std::make_unique<WorkerCheckpoints>(*Access::core(strategy_), options_.checkpoint_dir,
                                                       CheckpointManagerOptions{.max_to_keep = options_.max_to_keep},
                                                       options_.sharded_checkpoints);
  }
  if (!restore_checkpoint() && options_.init_fn) options_.init_fn();
}

Controller::~Controller() = default;

void Controller::check() const {
  const auto refuse = [](const auto&... parts) { fail<InvalidArgument>("[controller] ", parts...); };
  if (!options_.trainer && !options_.evaluator) refuse("there is no trainer and no evaluator, wanted one of them");
  if (options_.trainer && options_.steps_per_loop < 1) {
    refuse("steps_per_loop is ", options_.steps_per_loop, ", wanted 1 or more");
  }
  if (options_.checkpoint_interval < 0) {
    refuse("checkpoint_interval is ", options_.checkpoint_interval, ", wanted 0 or more");
  }
  if (options_.summary_interval < 0) {
    refuse("summary_interval is ", options_.summary_interval, ", wanted 0 or more");
  }
  if (options_.sharded_checkpoints && options_.trainer && !options_.trainer->saves_shards()) {
    refuse("sharded_checkpoints is set, but the trainer does not return shards (Trainer::save_shards)");
  }
  if (options_.max_to_keep < 0) refuse("max_to_keep is ", options_.max_to_keep, ", wanted 0 or more");
}

Logs Controller::train(int64_t steps, bool checkpoint_at_completion) {
  if (!options_.trainer) fail<FailedPrecondition>("[controller] train: there is no trainer");
  stopping_ = std::exchange(was_stopped_, false);
  InnerLoops rounds(*this, steps);
  Logs logs = run_rounds(rounds, *listeners_);
  if (checkpoint_at_completion) complete();
  return logs;
}

void Controller::leave() {
  listeners_->tell(Moment::kPreemption);
  if (checkpoints_) checkpoints_->wait();
  fail<Preempted>("[controller] a worker is preempted: training was left after step ", options_.trainer->global_step(),
                  options_.checkpoint_dir.empty() ? "" : ", which is saved");
}

// Writes the last checkpoint, and tells those who follow the checkpoints that no more will come.
void Controller::complete() {
  save_checkpoint();
  if (checkpoints_) checkpoints_->finish();
}

bool Controller::checkpoint_due() const {
  const int64_t interval = options_.checkpoint_interval;
  return interval > 0 && options_.trainer->global_step() / interval > std::max<int64_t>(saved_step_, 0) / interval;
}

void Controller::run(const std::vector<Action>& actions, const Logs& logs) {
  const int64_t step = options_.trainer ? options_.trainer->global_step() : evaluated_step_;
  for (const Action& action : actions) action({*this, logs, step});
}

Logs Controller::evaluate(int64_t steps) {
  if (!options_.evaluator) fail<FailedPrecondition>("[controller] evaluate: there is no evaluator");
  if (steps < 1 && steps != kAllSteps) {
    fail<InvalidArgument>("[controller] evaluate: steps is ", steps, ", wanted 1 or more, or kAllSteps");
  }
  return evaluate_here(steps);
}

Logs Controller::evaluate_here(int64_t steps) {
  listeners_->tell(Moment::kEvaluationBegin);
  Logs logs = options_.evaluator->evaluate(steps);
  if (options_.trainer && options_.trainer->told_to_end()) leave();
  // An evaluator that trains, too, knows the step of its weights.
  const auto* const trainer =
      options_.trainer ? options_.trainer.get() : dynamic_cast<const Trainer*>(options_.evaluator.get());
  if (trainer != nullptr) evaluated_step_ = trainer->global_step();
  listeners_->tell(Moment::kEvaluationEnd, logs);
  return logs;
}

Logs Controller::train_and_evaluate(int64_t train_steps, int64_t eval_steps, int64_t eval_interval,
                                    bool checkpoint_at_completion) {
  if (!options_.trainer || !options_.evaluator) {
    fail<FailedPrecondition>("[controller] train_and_evaluate: there is no ",
                             options_.trainer ? "evaluator" : "trainer");
  }
  if (eval_interval < 0) {
    fail<InvalidArgument>("[controller] train_and_evaluate: eval_interval is ", eval_interval, ", wanted 0 or more");
  }
  stopping_ = std::exchange(was_stopped_, false);
  InnerLoops rounds(*this, train_steps, InnerLoops::Evaluations{.steps = eval_steps, .interval = eval_interval});
  rounds.evaluate_if_due();  // an interrupted run may have left it out
  run_rounds(rounds, *listeners_);
  rounds.evaluate_if_due();  // an action may have gone back to an end
  if (checkpoint_at_completion) complete();
  return rounds.evaluation();
}

int64_t Controller::evaluate_continuously(int64_t train_steps, int64_t steps, std::chrono::milliseconds timeout) {
  if (!options_.evaluator) fail<FailedPrecondition>("[controller] evaluate_continuously: there is no evaluator");
  if (options_.checkpoint_dir.empty()) {
    fail<InvalidArgument>("[controller] evaluate_continuously: checkpoint_dir is empty, wanted the trainer's");
  }
  // The end of an earlier run that trained less is not the end of this one.
  std::string earlier = finished_run(options_.checkpoint_dir);
  const std::vector<int64_t> there = checkpoint_steps(options_.checkpoint_dir, CheckpointManagerOptions().name);
  if (!there.empty() && there.back() >= train_steps) earlier.clear();
  CheckpointFollower checkpoints(options_.checkpoint_dir, {.timeout = timeout, .skip_run = earlier});
  return evaluate_checkpoints(
      checkpoints, "[controller]",
      [&](const auto& checkpoint) { evaluated_step_ = options_.evaluator->load(checkpoint); },
      [&] {
        evaluate_here(steps);
        return !stopping_ && (train_steps == 0 || evaluated_step_ < train_steps);
      });
}

bool Controller::restore_checkpoint(bool keep_input) {
  if (options_.checkpoint_dir.empty() || !options_.trainer) return false;
  const StrategyCore& core = *Access::core(strategy_);
  const std::optional<SavedCheckpoint> checkpoint = checkpoints_->restore_latest({"model", "optimizer"});
  if (!checkpoint) return false;
  const CheckpointData& data = checkpoint->data;
  blame("[controller] " + checkpoint->folder.string(), [&] { options_.trainer->restore(data, keep_input); });
  const auto value = [&](const char* name, const char* otherwise) {
    const auto& values = data.values;
    return core.text_from_chief(values.contains(name) ? values.at(name) : otherwise);
  };
  evaluated_step_ =
      number_in<int64_t>(value(kEvaluatedStep, "-1"), c10::str("[controller] the checkpoint's value ", kEvaluatedStep));
  was_stopped_ = !value(kStoppedByAction, "").empty();
  listeners_->load(listeners_->states_from_chief(core, data));
  saved_step_ = options_.trainer->global_step();
  log().info("[controller] goes on after step {}, of {}{}", saved_step_, options_.checkpoint_dir.string(),
             was_stopped_ ? ", where an action had stopped the training" : "");
  return true;
}

void Controller::save_checkpoint() {
  if (options_.checkpoint_dir.empty() || !options_.trainer) return;
  const int64_t step = options_.trainer->global_step();
  if (step == saved_step_) return;
  CheckpointData data = options_.sharded_checkpoints ? options_.trainer->save_shards() : options_.trainer->save();
  data.values[kEvaluatedStep] = std::to_string(evaluated_step_);
  if (stopping_) data.values[kStoppedByAction] = "yes";
  listeners_->save(data);
  checkpoints_->save(step, data);
  saved_step_ = step;
}

}  // namespace cohort
