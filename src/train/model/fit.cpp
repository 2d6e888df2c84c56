// fit(): a training by epochs, over the loop of loop.h, that tells Keras' callbacks where it is. An epoch is steps, a
// validation every so often, and the callbacks' on_epoch_end.
#include <algorithm>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/training_run.h"
#include "strategy/core.h"
#include "train/loop/events.h"
#include "train/loop/loop.h"
#include "train/loop/position.h"

namespace cohort {

namespace {

class FitLoop final : public TrainingRun {
 public:
  FitLoop(Model& model, ModelState& state, const Dataset& data, const FitOptions& options)
      : state_(state),
        options_(options),
        input_(state.strategy(), state.strategy().distribute(data, options.input),
               {.pass_an_epoch = options.steps_per_epoch == 0, .stop = [&state] { return state.stop; }}),
        progress_(progress_options(options.verbose, options.output, state.strategy())),
        run_{.model = model, .epochs = options.epochs, .training = this},
        batch_logs_([&state] { return state.local_results(); }, [&state] { return state.local_loss(); }) {
    if (options_.validation_data) {
      validation_.emplace(state.strategy().distribute(*options_.validation_data, options_.input));
    }
    check();
    at_ends_ = options_.callbacks;
    std::stable_sort(at_ends_.begin(), at_ends_.end(),
                     [](const CallbackPtr& a, const CallbackPtr& b) { return a->turn() < b->turn(); });
    listeners_ = {options_.callbacks.begin(), options_.callbacks.end()};
    const int64_t known = input_.data().cardinality();
    steps_ = options_.steps_per_epoch > 0 ? options_.steps_per_epoch : std::max<int64_t>(known, -1);
  }

  History run() {
    state_.stop = false;
    if (options_.initial_epoch >= options_.epochs) return {};
    input_.begin_epoch(options_.initial_epoch);
    const GlobalBatch* first = input_.peek();
    if (first == nullptr) fail<InvalidArgument>(speaker(), "the dataset is empty");
    state_.build_from(*first);
    state_.optimizer();
    state_.warn_of_late_changes();
    start_.epoch = options_.initial_epoch;
    refresh(start_.epoch, 0);

    Logs logs;
    resumable_ = true;
    call([&](Callback& each) { each.on_train_begin(run_); });
    resumable_ = false;
    load_states(kCallbacks, listeners_, states_);
    state_.note_change();  // the module is the user's too
    state_.begin_steps();
    // A training that was stopped within an epoch still comes to its end.
    for (int64_t epoch = start_.epoch; epoch < options_.epochs; ++epoch) {
      if (input_.stopped() && start_.batch == 0) break;
      if (!run_epoch(epoch, logs)) break;
      start_.batch = 0;
    }
    call_at_end([&](Callback& each) { each.on_train_end(run_, logs); });
    return std::move(history_);
  }

  CheckpointData save() override {
    const StrategyCore& core = *Access::core(state_.strategy());
    CheckpointData data = save_training(state_, {.epoch = run_.epoch + (epoch_done_ ? 1 : 0),
                                                 .batch = epoch_done_ ? 0 : batches_done_,
                                                 .input = input_.save(epoch_done_),
                                                 .ending = input_.ending(epoch_done_)});
    if (core.worker_rank() == 0) save_states(kCallbacks, listeners_, data);
    return data;
  }

  bool resume(const std::function<std::optional<CheckpointData>()>& load) override {
    if (!resumable_) fail<FailedPrecondition>(speaker(), "resume() is for on_train_begin");
    const StrategyCore& core = *Access::core(state_.strategy());
    std::optional<CheckpointData> data;
    core.on_chief("resume", [&] { data = load(); });
    if (!core.any_worker("resume", data.has_value())) return false;
    const CheckpointData none;
    start_ = restore_training(state_, data ? *data : none);
    if (!input_.restore(start_)) start_.batch = 0;
    state_.epochs_done = start_.epoch;
    states_ = states_from_chief(core, kCallbacks, data ? *data : none);
    if (start_.ending != Ending::kNone) {
      log().info("{}a callback has ended the training in epoch {}", speaker(),
                 start_.epoch + (start_.batch > 0 ? 1 : 0));
      state_.stop = true;
    }
    refresh(start_.epoch, start_.batch);
    return true;
  }

  void end_when(std::function<bool()> told) override {
    if (!resumable_) fail<FailedPrecondition>(speaker(), "end_when() is for on_train_begin");
    input_.listen_to(std::move(told));
  }

  bool as_chief_says(bool mine) const override {
    return Access::core(state_.strategy())->text_from_chief(mine ? "yes" : "no") == "yes";
  }

  void on_chief(const std::string& what, const std::function<void()>& fn) const override {
    Access::core(state_.strategy())->on_chief(what, fn);
  }

 private:
  std::string speaker() const { return "[model] " + state_.name() + ": fit: "; }

  void check() const {
    const auto not_negative = [&](std::string_view name, int64_t value) {
      if (value < 0) fail<InvalidArgument>(speaker(), name, " must not be negative, got ", value);
    };
    not_negative("epochs", options_.epochs);
    not_negative("initial_epoch", options_.initial_epoch);
    not_negative("steps_per_epoch", options_.steps_per_epoch);
    not_negative("validation_steps", options_.validation_steps);
    if (options_.validation_freq <= 0) {
      fail<InvalidArgument>(speaker(), "validation_freq must be positive, got ", options_.validation_freq);
    }
    for (const CallbackPtr& each : options_.callbacks) {
      if (!each) fail<InvalidArgument>(speaker(), "one of the callbacks is null");
    }
    if (options_.steps_per_epoch == 0 && input_.data().cardinality() == kInfiniteCardinality) {
      fail<InvalidArgument>(speaker(), "the dataset never ends; set steps_per_epoch");
    }
  }

  template <typename Fn>
  void call(const Fn& fn) const {
    for (const CallbackPtr& each : options_.callbacks) fn(*each);
  }
  // At the end of a batch, an epoch or the training: those that save it come last.
  template <typename Fn>
  void call_at_end(const Fn& fn) const {
    for (const CallbackPtr& each : at_ends_) fn(*each);
  }

  void refresh(int64_t epoch, int64_t batch) {
    run_.epoch = epoch;
    run_.batch = batch;
    run_.step = state_.iterations();
    run_.steps_per_epoch = steps_;
  }

  // False when there was nothing left to train with.
  bool run_epoch(int64_t epoch, Logs& logs) {
    input_.begin_epoch(epoch);
    // A resumed epoch may be at its end; the next one's first batch is not to be taken before that is saved.
    const bool more = start_.batch > 0 || input_.peek() != nullptr;
    if (input_.stopped() && start_.batch == 0) return false;
    if (!more) {
      log().warn(
          "{}the data ran out before epoch {} of {}; training ends. With steps_per_epoch the dataset has to have "
          "steps_per_epoch * epochs batches: call repeat()",
          speaker(), epoch + 1, options_.epochs);
      return false;
    }
    epoch_done_ = false;
    refresh(epoch, start_.batch);
    state_.begin_training();
    if (start_.batch == 0) state_.reset_metrics();
    call([&](Callback& each) { each.on_epoch_begin(run_); });
    progress_.begin("Epoch " + std::to_string(epoch + 1) + "/" + std::to_string(options_.epochs), steps_, start_.batch);
    const bool whole = train(epoch);
    logs = state_.results();
    const double training_rate = run_.examples_per_second;
    if (validation_ && whole && (epoch + 1) % options_.validation_freq == 0) validate(logs);
    refresh(epoch, run_.batch);
    run_.examples_per_second = training_rate;
    epoch_done_ = true;
    call_at_end([&](Callback& each) { each.on_epoch_end(run_, logs); });
    input_.end_epoch();
    progress_.finish(logs);
    history_.append(epoch, logs);
    state_.epochs_done = epoch + (run_.ends_epoch() ? 1 : 0);
    return true;
  }

  // Whether the epoch was not cut short.
  bool train(int64_t epoch) {
    batches_done_ = start_.batch;
    const int64_t most = options_.steps_per_epoch > 0 ? options_.steps_per_epoch - start_.batch : kUntilTheEnd;
    const auto begin = [&] {
      refresh(epoch, batches_done_);
      call([&](Callback& each) { each.on_batch_begin(run_); });
    };
    const auto end = [&] {
      run_.step = state_.iterations();
      ++batches_done_;
      call_at_end([&](Callback& each) { each.on_batch_end(run_, batch_logs_); });
    };
    const StepsDone done = run_steps(state_, input_, most, progress_, {.begin = begin, .end = end});
    // A training that ends anyway is not left: its input has given a batch that nobody takes.
    if (input_.preempted() && !input_.stopped()) leave();
    run_.examples_per_second = done.examples_per_second;
    if (options_.steps_per_epoch == 0 && !input_.stopped()) steps_ = batches_done_;
    return !input_.stopped();
  }

  void validate(Logs& logs) {
    const auto results = evaluate_or_undo(state_, input_.listens(), [&] {
      return evaluate_on(
          state_, *validation_,
          {.steps = options_.validation_steps, .callbacks = &options_.callbacks, .run = &run_, .interrupt = [this] {
             return input_.told();
           }});
    });
    if (!results) leave();
    for (const auto& [name, value] : *results) logs.set("val_" + name, value);
  }

  [[noreturn]] void leave() {
    call_at_end([&](Callback& each) { each.on_preemption(run_); });
    fail<Preempted>(speaker(), "a worker is preempted: training was left in epoch ", run_.epoch + 1, " after batch ",
                    batches_done_, ", step ", run_.step);
  }

  ModelState& state_;
  const FitOptions& options_;
  TrainingInput input_;
  std::optional<DistributedDataset> validation_;
  ProgressBar progress_;
  RunInfo run_;
  BatchLogs batch_logs_;
  std::vector<CallbackPtr> at_ends_;  // the callbacks by their turns
  Listeners listeners_;               // the callbacks
  CheckpointData states_;             // theirs in the checkpoint that is resumed
  int64_t steps_ = -1;
  History history_;
  TrainingPosition start_;  // of the epoch that is to be run
  bool resumable_ = false;
  int64_t batches_done_ = 0;  // of the epoch
  bool epoch_done_ = false;   // in on_epoch_end
};

}  // namespace

History run_fit(Model& model, ModelState& state, const Dataset& data, const FitOptions& options) {
  return FitLoop(model, state, data, options).run();
}

}  // namespace cohort
