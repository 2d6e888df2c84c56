#include "cohort/train/controller.h"

#include <algorithm>
#include <utility>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/series.h"
#include "cohort/error.h"
#include "strategy/core.h"
#include "train/loop/events.h"
#include "train/loop/loop.h"

namespace cohort {

namespace {

// Values in checkpoints.
constexpr const char* kEvaluatedStep = "evaluated_step";
constexpr const char* kStoppedByAction = "stopped_by_action";  // absent: no

}  // namespace

Controller::Controller(ControllerOptions options)
    : options_(std::move(options)), strategy_(options_.strategy ? *options_.strategy : current_strategy()) {
  check();
  for (const auto* actions : {&options_.train_actions, &options_.eval_actions, &options_.summary_actions}) {
    for (const Action& action : *actions) {
      if (action.listener()) listeners_.push_back(action.listener());
    }
  }
  if (!options_.trainer) return;
  if (options_.preempted) options_.trainer->end_when(options_.preempted);
  if (!options_.checkpoint_dir.empty()) {
    Access::core(strategy_)->on_chief("the checkpoints", [&] {
      checkpoints_ = std::make_unique<CheckpointManager>(options_.checkpoint_dir,
                                                         CheckpointManagerOptions{.max_to_keep = options_.max_to_keep});
    });
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
  if (options_.max_to_keep < 0) refuse("max_to_keep is ", options_.max_to_keep, ", wanted 0 or more");
}

Logs Controller::train(int64_t steps, bool checkpoint_at_completion) {
  if (!options_.trainer) fail<FailedPrecondition>("[controller] train: there is no trainer");
  stopping_ = std::exchange(was_stopped_, false);
  Logs logs = train_to(steps, /*last=*/true, /*evaluation_follows=*/false);
  if (checkpoint_at_completion) complete();
  return logs;
}

// With an evaluation at its end the checkpoint of that step is written after it.
Logs Controller::train_to(int64_t step, bool last, bool evaluation_follows) {
  Trainer& trainer = *options_.trainer;
  Logs logs;
  while (!stopping_ && trainer.global_step() < step) {
    const int64_t before = trainer.global_step();
    const int64_t steps = next_loop(step) - before;
    logs = trainer.train(steps);
    const int64_t now = trainer.global_step();
    if (trainer.told_to_end()) leave();
    if (now - before != steps) {
      fail<FailedPrecondition>("[controller] the trainer was to make ", steps,
                               " steps, but the global step went on by ", now - before);
    }
    run(options_.train_actions, logs);
    was_stopped_ = false;
    if (trainer.global_step() != now) continue;  // an action went back
    const bool at_end = stopping_ || now >= step;
    const bool summary_due = options_.summary_interval > 0 && now % options_.summary_interval == 0;
    if (summary_due || stopping_ || (at_end && last)) run(options_.summary_actions, logs);
    if (checkpoint_due() && !(at_end && evaluation_follows)) save_checkpoint();
  }
  return logs;
}

// Where the inner loop from here ends.
int64_t Controller::next_loop(int64_t limit) const {
  const int64_t step = options_.trainer->global_step();
  for (const int64_t interval : {options_.steps_per_loop, options_.checkpoint_interval, options_.summary_interval}) {
    if (interval > 0) limit = std::min(limit, (step / interval + 1) * interval);
  }
  return limit;
}

void Controller::leave() {
  save_checkpoint();
  Access::core(strategy_)->on_chief("the last checkpoint", [&] {
    if (checkpoints_) checkpoints_->wait();
  });
  fail<Preempted>("[controller] a worker is preempted: training was left after step ", options_.trainer->global_step(),
                  options_.checkpoint_dir.empty() ? "" : ", which is saved");
}

// Who follows the checkpoints comes to an end.
void Controller::complete() {
  save_checkpoint();
  Access::core(strategy_)->on_chief("the end of the checkpoints", [&] {
    if (checkpoints_) checkpoints_->finish();
  });
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
  Logs logs = options_.evaluator->evaluate(steps);
  if (options_.trainer && options_.trainer->told_to_end()) leave();
  if (options_.trainer) evaluated_step_ = options_.trainer->global_step();
  run(options_.eval_actions, logs);
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
  const Trainer& trainer = *options_.trainer;
  const auto due = [&] {
    const int64_t step = trainer.global_step();
    const bool multiple = eval_interval > 0 && step % eval_interval == 0;
    return step > 0 && evaluated_step_ != step && (multiple || step >= train_steps || stopping_);
  };
  Logs logs;
  if (due()) logs = evaluate(eval_steps);
  while (!stopping_ && trainer.global_step() < train_steps) {
    const int64_t next = (trainer.global_step() / std::max<int64_t>(eval_interval, 1) + 1) * eval_interval;
    const int64_t until = eval_interval > 0 ? std::min(next, train_steps) : train_steps;
    train_to(until, /*last=*/until == train_steps, /*evaluation_follows=*/true);
    if (due()) logs = evaluate(eval_steps);
    if (checkpoint_due()) save_checkpoint();
  }
  if (checkpoint_at_completion) complete();
  return logs;
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
  std::optional<SavedCheckpoint> checkpoint;
  core.on_chief("the latest checkpoint", [&] { checkpoint = checkpoints_->restore_latest(); });
  if (!core.any_worker("whether there is a checkpoint", checkpoint.has_value())) return false;
  const CheckpointData none;
  // Only the chief has the checkpoint, and says of it what is wrong.
  const std::string source = "[controller] " + (checkpoint ? checkpoint->folder : options_.checkpoint_dir).string();
  blame(source, [&] { options_.trainer->restore(checkpoint ? checkpoint->data : none, keep_input); });
  const auto value = [&](const char* name, const char* otherwise) {
    const auto& values = checkpoint ? checkpoint->data.values : none.values;
    return core.text_from_chief(values.contains(name) ? values.at(name) : otherwise);
  };
  evaluated_step_ = std::stoll(value(kEvaluatedStep, "-1"));
  was_stopped_ = !value(kStoppedByAction, "").empty();
  load_states(kActions, listeners_, states_from_chief(core, kActions, checkpoint ? checkpoint->data : none));
  saved_step_ = options_.trainer->global_step();
  log().info("[controller] goes on after step {}, of {}{}", saved_step_, options_.checkpoint_dir.string(),
             was_stopped_ ? ", where an action had stopped the training" : "");
  return true;
}

void Controller::save_checkpoint() {
  if (options_.checkpoint_dir.empty() || !options_.trainer) return;
  const int64_t step = options_.trainer->global_step();
  if (step == saved_step_) return;
  CheckpointData data = options_.trainer->save();
  data.values[kEvaluatedStep] = std::to_string(evaluated_step_);
  if (stopping_) data.values[kStoppedByAction] = "yes";
  save_states(kActions, listeners_, data);
  Access::core(strategy_)->on_chief("a checkpoint", [&] { checkpoints_->save(step, data); });
  saved_step_ = step;
}

}  // namespace cohort
