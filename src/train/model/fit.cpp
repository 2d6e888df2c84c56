// fit(): the preset of run_rounds() whose rounds are epochs and whose listeners are Keras' callbacks. An epoch is
// steps, and a validation every so often.
#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "cohort/train/training_run.h"
#include "strategy/steps_together.h"
#include "train/loop/events.h"
#include "train/loop/loop.h"
#include "train/loop/position.h"
#include "train/model/fit_options.h"

namespace cohort {

namespace {

class FitRun final : public Rounds, public TrainingRun {
 public:
  FitRun(Model& model, ModelState& state, const Dataset& data, const FitOptions& options)
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
    require_fit_options(options_, input_.data().cardinality(), speaker());
    for (const CallbackPtr& each : options_.callbacks) listeners_.add(each, run_);
    const int64_t known = std::max<int64_t>(input_.data().cardinality(), -1);
    steps_ = options_.steps_per_epoch > 0 ? options_.steps_per_epoch : known;
  }

  History run() {
    state_.stop = false;
    if (options_.initial_epoch >= options_.epochs) return {};
    input_.begin_epoch(options_.initial_epoch);
    const GlobalBatch* first = input_.peek();
    if (first == nullptr) fail<InvalidArgument>(speaker(), "the dataset is empty");
    state_.build_from((*first)[0]);
    state_.optimizer();
    state_.warn_of_late_changes();
    start_.epoch = options_.initial_epoch;
    refresh(start_.epoch, 0);

    resumable_ = true;
    run_rounds(*this, listeners_);
    return std::move(history_);
  }

  void prepare() override {
    resumable_ = false;
    listeners_.load(states_);
    state_.note_change();  // the module is the user's too
    state_.begin_steps();
  }

  bool begin_round() override {
    // A training that was stopped within an epoch still comes to its end.
    const auto ended = [&] { return start_.epoch >= options_.epochs || (input_.stopped() && start_.batch == 0); };
    if (ended()) return false;
    input_.begin_epoch(start_.epoch);
    // A resumed epoch may be at its end; the next one's first batch is not to be taken before that is saved.
    const bool more = start_.batch > 0 || input_.peek() != nullptr;
    if (ended()) return false;
    if (!more) {
      log().warn(
          "{}the data ran out before epoch {} of {}; training ends. With steps_per_epoch the dataset has to have "
          "steps_per_epoch * epochs batches: call repeat()",
          speaker(), start_.epoch + 1, options_.epochs);
      return false;
    }
    epoch_done_ = false;
    refresh(start_.epoch, start_.batch);
    state_.begin_training();
    if (start_.batch == 0) state_.reset_metrics();
    return true;
  }

  Logs train() override {
    progress_.begin(c10::str("Epoch ", start_.epoch + 1, "/", options_.epochs), steps_, start_.batch);
    batches_done_ = start_.batch;
    const int64_t most = options_.steps_per_epoch > 0 ? options_.steps_per_epoch - start_.batch : kUntilTheEnd;
    const int64_t together = state_.steps_per_execution();
    int64_t first = batches_done_ - batches_done_ % together;  // of those between two calls of the callbacks
    std::optional<StepsTogether> launches;
    if (together > 1) launches.emplace(*Access::core(state_.strategy()), together);
    const auto tell_end = [&] {
      if (launches) launches->begin();
      run_.batch = batches_done_ - 1;
      run_.steps = batches_done_ - first;
      first = batches_done_;
      listeners_.tell_step_end(batch_logs_);
    };
    const auto begin = [&] {
      refresh(start_.epoch, batches_done_);
      if (batches_done_ == first) listeners_.tell(Moment::kStepBegin);
      if (launches && (batches_done_ == first || batches_done_ == start_.batch)) launches->announce();
    };
    const auto end = [&] {
      refresh(start_.epoch, batches_done_++);
      if (batches_done_ % together == 0) tell_end();
    };
    const StepsDone done = run_steps(state_, input_, most, progress_, {.begin = begin, .end = end});
    // A training that ends anyway is not left: its input has given a batch that nobody takes.
    if (input_.preempted() && !input_.stopped()) leave();
    if (batches_done_ != first) tell_end();
    run_.examples_per_second = done.examples_per_second;
    if (options_.steps_per_epoch == 0 && !input_.stopped()) steps_ = batches_done_;
    return state_.results();
  }

  // An epoch that was cut short is not validated.
  bool due(Moment moment) const override {
    return moment == Moment::kEvaluationBegin && validation_ && !input_.stopped() &&
           validates_after(options_.validation_freq, start_.epoch + 1);
  }

  void evaluate(Logs& logs) override {
    const double training_rate = run_.examples_per_second;
    const auto results = evaluate_or_undo(state_, input_.listens(), [&] {
      return evaluate_on(
          state_, *validation_,
          {.steps = options_.validation_steps, .listeners = &listeners_, .run = &run_, .interrupt = [this] {
             return input_.told();
           }});
    });
    if (!results) leave();
    for (const auto& [name, value] : *results) logs.set("val_" + name, value);
    run_.examples_per_second = training_rate;
  }

  void complete_round() override {
    refresh(start_.epoch, run_.batch);
    epoch_done_ = true;
  }

  void end_round(const Logs& logs) override {
    input_.end_epoch();
    progress_.finish(logs);
    history_.append(start_.epoch, logs);
    state_.epochs_done = start_.epoch + (run_.ends_epoch() ? 1 : 0);
    ++start_.epoch;
    start_.batch = 0;
  }

  void finish() override { state_.optimizer().finalize_variable_values(); }

  CheckpointData save() override { return save(/*sharded=*/false); }
  CheckpointData save_shards() override { return save(/*sharded=*/true); }

  bool resume(const std::function<std::optional<CheckpointData>()>& load) override {
    if (!resumable_) fail<FailedPrecondition>(speaker(), "resume() is for on_train_begin");
    const StrategyCore& core = *Access::core(state_.strategy());
    return resume_together([&]() -> std::optional<CheckpointData> {
      std::optional<CheckpointData> data;
      core.on_chief("resume", [&] { data = load(); });
      if (!core.any_worker("resume", data.has_value())) return std::nullopt;
      return data ? std::move(data) : CheckpointData();
    });
  }

  bool resume_together(const std::function<std::optional<CheckpointData>()>& load) override {
    if (!resumable_) fail<FailedPrecondition>(speaker(), "resume() is for on_train_begin");
    const StrategyCore& core = *Access::core(state_.strategy());
    const std::optional<CheckpointData> data = load();
    if (!data) return false;
    start_ = restore_training(state_, *data);
    if (!input_.restore(start_)) start_.batch = 0;
    state_.epochs_done = start_.epoch;
    states_ = listeners_.states_from_chief(core, *data);
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

  CheckpointData save(bool sharded) {
    const StrategyCore& core = *Access::core(state_.strategy());
    CheckpointData data = save_training(state_,
                                        {.epoch = run_.epoch + (epoch_done_ ? 1 : 0),
                                         .batch = epoch_done_ ? 0 : batches_done_,
                                         .input = input_.save(epoch_done_),
                                         .ending = input_.ending(epoch_done_)},
                                        sharded);
    run_.step = state_.iterations();
    if (core.worker_rank() == 0) listeners_.save(data);
    return data;
  }

  void refresh(int64_t epoch, int64_t batch) {
    run_.epoch = epoch;
    run_.batch = batch;
    run_.step = state_.iterations();
    run_.steps_per_epoch = steps_;
  }

  [[noreturn]] void leave() {
    listeners_.tell(Moment::kPreemption);
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
  Listeners listeners_{kCallbacks};
  CheckpointData states_;  // the listeners' states in the checkpoint that is resumed
  int64_t steps_ = -1;
  History history_;
  TrainingPosition start_;    // the beginning of the epoch that is run
  bool resumable_ = false;    // true in on_train_begin
  int64_t batches_done_ = 0;  // batches of the epoch that are done
  bool epoch_done_ = false;   // true in on_epoch_end
};

}  // namespace

History run_fit(Model& model, ModelState& state, const Dataset& data, const FitOptions& options) {
  return FitRun(model, state, data, options).run();
}

}  // namespace cohort
