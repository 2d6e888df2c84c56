// ModelTrainer: the inner loops of a Controller for a Model. Its metrics and its progress are those of stretches, which
// may be longer than an inner loop; a stretch under way goes on after an evaluation and after a restart.
#include "cohort/train/model_trainer.h"

#include <algorithm>
#include <exception>
#include <functional>

#include "base/access.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/number_in.h"
#include "checkpoint/folder.h"
#include "strategy/steps_together.h"
#include "train/controller/moving_average.h"
#include "train/loop/loop.h"
#include "train/loop/parts.h"
#include "train/loop/position.h"

namespace cohort {

namespace {

constexpr const char* kGlobalStep = "global_step";
constexpr const char* kAverages = "ema";

// Has the replicas do something at the end of each training step, while it lives.
class AfterUpdateScope {
 public:
  AfterUpdateScope(ModelState& state, AfterUpdate after) : state_(state) { state_.set_after_update(std::move(after)); }
  AfterUpdateScope(const AfterUpdateScope&) = delete;
  AfterUpdateScope& operator=(const AfterUpdateScope&) = delete;
  ~AfterUpdateScope() { state_.set_after_update({}); }

 private:
  ModelState& state_;
};

}  // namespace

class ModelTrainer::Impl {
 public:
  Impl(Model model, std::shared_ptr<ModelState> state, ModelTrainerOptions options)
      : model_(std::move(model)),
        state_(std::move(state)),
        options_(std::move(options)),
        average_(options_.ema, Access::core(state_->strategy())->joins()),
        progress_(progress_options(options_.verbose, options_.output, state_->strategy())) {
    state_->require_compiled("ModelTrainer");
    if (options_.train) {
      input_.emplace(state_->strategy(), state_->strategy().distribute(*options_.train, options_.input));
    }
    if (options_.validation)
      validation_.emplace(
          state_->strategy().distribute(*options_.validation, options_.validation_input.value_or(options_.input)));
    if (!input_ && !validation_) fail<InvalidArgument>(speaker(), "there is no data, wanted train or validation");
    check_stages();
    const Placement& placement = Access::core(state_->strategy())->placement();
    if (average_.on()) {
      placement.require_here(speaker() + "ema has no meaning under parameter servers, whose weights are elsewhere");
    }
    if (!options_.stages.empty()) {
      placement.require_here(speaker() +
                             "stages are not for parameter servers, which know all variables before they serve");
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    // Ends the display of the last stretch of a training whose end was not known.
    if (std::uncaught_exceptions() == 0) end_shown();
  }

  Model& model() { return model_; }
  int64_t global_step() const { return global_step_; }
  bool told_to_end() const { return told_to_end_; }
  double examples_per_second() const { return examples_per_second_; }
  void end_when(std::function<bool()> told) {
    told_ = std::move(told);
    if (input_) input_->listen_to([this] { return told_ && told_(); });
  }

  Logs train(int64_t steps) {
    if (!input_) fail<FailedPrecondition>(speaker(), "there is no training data");
    const int64_t end = global_step_ + steps;
    Logs logs;
    while (global_step_ < end && !told_to_end_) {
      enter(stage_after(global_step_));
      const bool changes = stage_ < options_.stages.size() && options_.stages[stage_] < end;
      logs = train_in_stage((changes ? options_.stages[stage_] : end) - global_step_);
    }
    return logs;
  }

  CheckpointData save(bool sharded) {
    const int64_t epoch = options_.steps_per_epoch > 0 ? global_step_ / options_.steps_per_epoch : 0;
    CheckpointData data =
        save_training(*state_, {.epoch = epoch, .batch = global_step_, .input = input_ ? input_->save() : ""}, sharded);
    data.values[kGlobalStep] = std::to_string(global_step_);
    if (average_.started()) data.tensors[kAverages] = average_.averages();
    return data;
  }

  void restore(const CheckpointData& data, bool keep_input) {
    build();
    const StrategyCore& core = *Access::core(state_->strategy());
    const auto step = data.values.find(kGlobalStep);
    const std::string text = core.text_from_chief(step == data.values.end() ? "" : step->second);
    if (text.empty()) fail<NotFound>(speaker(), "the checkpoint has no value \"", kGlobalStep, "\"");
    // The progress that was shown so far belongs to another course of the training.
    end_shown();
    set_global_step(number_in<int64_t>(text, c10::str(speaker(), "the checkpoint's value ", kGlobalStep)));
    enter(stage_before(global_step_));
    state_->begin_training();
    const TrainingPosition position = restore_training(*state_, data);
    restore_averages(data);
    told_to_end_ = false;
    in_stretch_ = false;
    restored_ = true;
    if (input_ && !(keep_input && input_->begun())) input_->restore(position);
  }

  Logs evaluate(int64_t steps) {
    if (!validation_) fail<FailedPrecondition>(speaker(), "there is no validation data");
    // A stretch that is under way goes on after the evaluation.
    end_shown();
    std::vector<torch::Tensor> sums;
    if (in_stretch_) sums = state_->metric_sums();
    RunInfo run{.model = model_};
    const std::optional<Logs> logs = evaluate_or_undo(*state_, told_ != nullptr, [&] {
      std::optional<Logs> result;
      with_averages([&] {
        result = evaluate_on(*state_, *validation_,
                             {.title = "Evaluation",
                              .steps = steps == kAllSteps ? 0 : steps,
                              .progress = &progress_,
                              .run = &run,
                              .interrupt = [this] { return told_ && told_(); }});
      });
      return result;
    });
    if (!logs) {
      told_to_end_ = true;
      return {};
    }
    if (in_stretch_) state_->set_metric_sums(sums);
    examples_per_second_ = run.examples_per_second;
    return *logs;
  }

  int64_t load(const std::filesystem::path& checkpoint) {
    build();
    const StrategyCore& core = *Access::core(state_->strategy());
    SavedCheckpoint whole;
    state_->finish_steps();
    state_->note_change();
    const auto read = [&] {
      const CheckpointReader reader(checkpoint);
      reader.check();
      whole.step = reader.manifest().step;
      read_groups(
          reader, [](const std::string& group) { return group == "model" || group == kAverages; }, whole.data);
      return whole.data.tensors["model"];
    };
    load_from_chief(state_->module(), read, {.what = "a checkpoint", .source = speaker() + checkpoint.string()});
    restore_averages(whole.data);
    set_global_step(
        number_in<int64_t>(core.text_from_chief(std::to_string(whole.step)), c10::str(speaker(), "the chief's step")));
    return global_step_;
  }

  void with_averages(const std::function<void()>& fn) {
    if (!average_.started()) return fn();
    const NamedTensors before = average_.swap_into(state_->module());
    try {
      fn();
    } catch (...) {
      state_->module().load_state(before, /*strict=*/false);
      throw;
    }
    state_->module().load_state(before, /*strict=*/false);
  }

 private:
  // Makes steps of which none is the first of a stage.
  Logs train_in_stage(int64_t steps) {
    build();
    input_->begin_epoch(0);
    state_->begin_training();
    if (!std::exchange(begun_, true)) state_->note_change();  // the module is the user's too
    state_->begin_steps();
    begin_stretch(steps);
    const StepsDone done = make_steps(steps);
    told_to_end_ = input_->preempted();
    if (done.steps < steps && !told_to_end_) {
      fail<InvalidArgument>(speaker(), "the data ran out after step ", global_step_, "; call repeat() on it");
    }
    examples_per_second_ = done.examples_per_second;
    Logs logs = state_->results();
    logs.set("learning_rate", state_->optimizer().learning_rate());
    if (state_->optimizer().rule().gradient().loss_scale) logs.set("loss_scale", state_->optimizer().loss_scale());
    set_global_step(global_step_);
    in_stretch_ = options_.report_steps > 0 && global_step_ % options_.report_steps != 0;
    shown_logs_ = logs;
    if (!in_stretch_ || told_to_end_ || global_step_ == options_.train_steps) end_shown();
    return logs;
  }

  StepsDone make_steps(int64_t steps) {
    StrategyCore& core = *Access::core(state_->strategy());
    // Where work is recorded, the averages are a part of the step.
    const bool within = average_.on() && core.joins();
    const auto follow = [this](const Replica& replica) { average_.update(replica.local_id()); };
    const AfterUpdateScope scope(*state_, within ? AfterUpdate{.token = token_, .run = follow} : AfterUpdate{});
    const auto begin = [this] {
      if (average_.on()) average_.begin_step(state_->module(), global_step_ + 1);
    };
    if (within) begin();  // before the steps are announced, because it makes the averages
    const auto end = [&] {
      ++global_step_;
      if (average_.on() && !within) average_.update();
    };
    StepsTogether launches(core, steps);
    launches.announce();
    const StepsDone done = run_steps(*state_, *input_, steps, progress_, {.begin = begin, .end = end});
    launches.begin();
    return done;
  }

  void set_global_step(int64_t step) {
    global_step_ = step;
    if (options_.steps_per_epoch > 0) state_->epochs_done = step / options_.steps_per_epoch;
  }

  // Ends the display of a stretch, which may have more steps to come.
  void end_shown() {
    if (std::exchange(shows_, false)) progress_.finish(shown_logs_);
  }

  std::string speaker() const { return "[trainer] " + state_->name() + ": "; }

  void check_stages() const {
    const std::vector<int64_t>& stages = options_.stages;
    if (stages.empty()) return;
    if (!options_.begin_stage) fail<InvalidArgument>(speaker(), "begin_stage is not set, but there are stages");
    const bool ascending = std::adjacent_find(stages.begin(), stages.end(), std::greater_equal<>()) == stages.end();
    if (stages.front() < 1 || !ascending) {
      fail<InvalidArgument>(speaker(), "stages is ", torch::IntArrayRef(stages),
                            ", wanted steps from 1 on, each beyond the one before");
    }
  }

  // Returns the stage of the step that follows.
  std::size_t stage_after(int64_t step) const {
    const std::vector<int64_t>& stages = options_.stages;
    return static_cast<std::size_t>(std::upper_bound(stages.begin(), stages.end(), step) - stages.begin());
  }
  // Returns the stage of the step that was made last.
  std::size_t stage_before(int64_t step) const { return stage_after(step - 1); }

  void enter(std::size_t stage) {
    if (stage == stage_) return;
    options_.begin_stage(stage);
    state_->reset_metrics();  // because begin_stage() may have compiled new ones
    stage_ = stage;
  }

  // Builds the model from the shape of a batch, if it is not built yet.
  void build() {
    if (state_->built()) return;
    const std::optional<GlobalBatch> first = (input_ ? input_->data() : *validation_).iterator({.epoch = 0}).next();
    if (!first) fail<InvalidArgument>(speaker(), "the data is empty");
    state_->build_from((*first)[0]);
  }

  // Begins a stretch, or goes on with the one under way; after a restore with the sums of the checkpoint.
  void begin_stretch(int64_t steps) {
    const int64_t report = options_.report_steps;
    const int64_t done = report > 0 ? global_step_ % report : 0;
    if (!in_stretch_ && (done == 0 || !restored_)) state_->reset_metrics();
    restored_ = false;
    if (std::exchange(shows_, true)) return;
    const int64_t first = global_step_ - done;
    int64_t whole = report > 0 ? report : steps;
    if (options_.train_steps > global_step_) whole = std::min(whole, options_.train_steps - first);
    progress_.begin(title(first, whole), whole, done);
  }

  // Returns the title of the progress over the steps after `first`.
  std::string title(int64_t first, int64_t steps) const {
    const int64_t epoch = options_.steps_per_epoch;
    if (epoch > 0 && first % epoch == 0 && (options_.report_steps == epoch || steps == epoch)) {
      const int64_t epochs = (options_.train_steps + epoch - 1) / epoch;
      return "Epoch " + std::to_string(first / epoch + 1) + (epochs > 0 ? "/" + std::to_string(epochs) : "");
    }
    const std::string of = options_.train_steps > 0 ? " of " + std::to_string(options_.train_steps) : "";
    return "Steps " + std::to_string(first + 1) + " to " + std::to_string(first + steps) + of;
  }

  // Sets the averages of all workers to those in the chief's checkpoint.
  void restore_averages(const CheckpointData& data) {
    const StrategyCore& core = *Access::core(state_->strategy());
    const auto saved = data.tensors.find(kAverages);
    if (!core.any_worker("whether there are averages", saved != data.tensors.end())) return average_.forget();
    if (!average_.on()) return;
    average_.begin(state_->module());
    if (saved != data.tensors.end()) average_.restore(state_->module(), saved->second);
    std::vector<torch::Tensor> tensors;
    const NamedTensors averages = average_.averages();
    for (const auto& [name, tensor] : averages) tensors.push_back(tensor);
    core.broadcast_from_chief(tensors);
    average_.restore(state_->module(), averages);
  }

  Model model_;
  std::shared_ptr<ModelState> state_;
  ModelTrainerOptions options_;
  MovingAverage average_;
  const std::shared_ptr<const int> token_ = std::make_shared<const int>(0);  // stands for average_ in signatures
  ProgressBar progress_;
  std::optional<TrainingInput> input_;
  std::optional<DistributedDataset> validation_;
  std::function<bool()> told_;
  bool told_to_end_ = false;
  int64_t global_step_ = 0;
  std::size_t stage_ = 0;
  bool begun_ = false;
  bool in_stretch_ = false;  // a stretch has begun that the next train() goes on with
  bool restored_ = false;    // a checkpoint was restored since the last train()
  bool shows_ = false;       // the progress of the stretch is shown
  Logs shown_logs_;          // the logs of the last train()
  double examples_per_second_ = 0.0;
};

ModelTrainer::ModelTrainer(Model model, ModelTrainerOptions options)
    : impl_(std::make_unique<Impl>(model, Access::state(model), std::move(options))) {}

ModelTrainer::~ModelTrainer() = default;

int64_t ModelTrainer::global_step() const {
  return impl_->global_step();
}
Logs ModelTrainer::train(int64_t steps) {
  return impl_->train(steps);
}
CheckpointData ModelTrainer::save() {
  return impl_->save(/*sharded=*/false);
}
CheckpointData ModelTrainer::save_shards() {
  return impl_->save(/*sharded=*/true);
}
void ModelTrainer::restore(const CheckpointData& data, bool keep_input) {
  impl_->restore(data, keep_input);
}
void ModelTrainer::end_when(std::function<bool()> told) {
  impl_->end_when(std::move(told));
}
bool ModelTrainer::told_to_end() const {
  return impl_->told_to_end();
}
Logs ModelTrainer::evaluate(int64_t steps) {
  return impl_->evaluate(steps);
}
int64_t ModelTrainer::load(const std::filesystem::path& checkpoint) {
  return impl_->load(checkpoint);
}
void ModelTrainer::with_averages(const std::function<void()>& fn) {
  impl_->with_averages(fn);
}
double ModelTrainer::examples_per_second() const {
  return impl_->examples_per_second();
}
Model& ModelTrainer::model() {
  return impl_->model();
}

}  // namespace cohort
