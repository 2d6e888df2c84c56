// A training is rounds, and a round is steps. Everything that happens besides the steps happens at a moment of
// run_rounds() or run_steps(), whoever trains.
#include "train/loop/loop.h"

#include <chrono>

#include "base/access.h"
#include "strategy/core.h"

namespace cohort {

Logs run_rounds(Rounds& rounds, const Listeners& listeners) {
  listeners.tell(Moment::kTrainBegin);
  rounds.prepare();
  Logs logs;
  while (rounds.begin_round()) {
    listeners.tell(Moment::kRoundBegin);
    logs = rounds.train();
    listeners.tell(Moment::kStepsEnd, logs);
    if (rounds.went_back()) continue;
    if (rounds.due(Moment::kSummary)) listeners.tell(Moment::kSummary, logs);
    if (rounds.due(Moment::kEvaluationBegin)) rounds.evaluate(logs);
    rounds.complete_round();
    listeners.tell(Moment::kRoundEnd, logs);
    if (rounds.due(Moment::kCheckpoint)) listeners.tell(Moment::kCheckpoint, logs);
    rounds.end_round(logs);
  }
  rounds.finish();
  listeners.tell(Moment::kTrainEnd, logs);
  return logs;
}

StepsDone run_steps(ModelState& state, TrainingInput& input, int64_t most, ProgressBar& progress,
                    const StepEvents& events) {
  const auto start = std::chrono::steady_clock::now();
  const std::function<Logs()> shown = [&state] { return state.local_results(); };
  const StrategyCore& core = *Access::core(state.strategy());
  StepsDone done;
  int64_t examples = 0;
  while (done.steps < most && !input.stopped()) {
    // Several workers learn with the batch whether the training is stopped.
    if (input.peek() == nullptr || input.stopped()) break;
    const std::optional<GlobalBatch> batch = input.next();
    if (events.begin) events.begin();
    state.train_step(*batch);
    if (events.end) events.end();
    ++done.steps;
    examples += batch->global_size();
    progress.update(batch->global_size(), shown, /*may_draw=*/core.gathered_steps() == 0);
    if (input.preempted() && !input.stopped()) break;
  }
  state.finish_steps();
  state.local_loss();  // waits for the devices, so that the time is right
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  done.examples_per_second = static_cast<double>(examples) / spent.count();
  return done;
}

}  // namespace cohort
