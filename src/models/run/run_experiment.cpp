// A run of an experiment: the task gives data, model and loss, the plan gives the numbers, and a Controller trains. A
// mode is one of the ways to call the Controller.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "base/atomic_file.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/number_in.h"
#include "checkpoint/series.h"
#include "cohort/models/experiment.h"
#include "cohort/preemption.h"
#include "cohort/train/actions.h"
#include "models/run/local_place.h"
#include "models/run/params_file.h"
#include "models/run/part.h"
#include "models/run/plan.h"
#include "models/run/summaries.h"
#include "strategy/core.h"

namespace cohort {

namespace {

std::filesystem::path make_folder(const std::filesystem::path& folder) {
  if (folder.empty()) fail<InvalidArgument>("[train] --model_dir is missing: the folder for checkpoints and metrics");
  require_local("[train] --model_dir", folder.string());
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail<InvalidArgument>("[train] --model_dir=", folder.string(), " cannot be made: ", error.message());
  return folder;
}

std::unique_ptr<Part> part_in(const Strategy& strategy) {
  for (const PartMaker& maker : extensions<PartMaker>()) {
    if (std::unique_ptr<Part> part = maker.make(strategy)) return part;
  }
  return std::make_unique<Part>();
}

class ExperimentRun {
 public:
  ExperimentRun(const ExperimentConfig& experiment, const Config& config, const Strategy& strategy,
                const RunOptions& options)
      : experiment_(experiment),
        config_(config),
        strategy_(strategy),
        options_(options),
        part_(part_in(strategy)),
        folder_(make_folder(options.model_dir)),
        trains_(options.mode.find("train") != std::string::npos) {}

  Logs operator()() {
    torch::manual_seed(static_cast<uint64_t>(runtime().seed));
    strategy_.set_seed(static_cast<uint64_t>(runtime().seed));
    const auto scope = strategy_.scope();
    const ComputeScope compute(plan_compute(runtime()));
    data_ = task().build_inputs(runtime(), trains_);
    require_validation();
    plan_ = plan_run(experiment_.trainer, data_, trains_);
    stages_ = task().stages();
    if (trains_) part_->require_stages(stages_);
    model_.emplace(task().build_model());
    const CompileOptions first = plan_compile(experiment_, plan_, strategy_.num_replicas_in_sync(), 0);
    check_best(plan_, first);
    config_.require_read("a run of " + described());
    summaries_.emplace(folder_, plan_.summaries, strategy_.should_save_summary() && part_->in_charge());
    announce();
    compile(0, first);
    if (part_->serves(trains_)) return {};
    make_trainer();
    if (options_.mode == "eval") return evaluate_once();
    if (options_.mode == "continuous_eval") return evaluate_continuously();
    return train();
  }

 private:
  // Without this an epoch would be trained first.
  void require_validation() const {
    const bool evaluates = options_.mode != "train";
    if (!evaluates || !data_.validation || data_.validation->cardinality() != 0) return;
    fail<InvalidArgument>("[train] ", data_.description,
                          " has no batch to evaluate with: task.train_data.held_out leaves ",
                          "none of its examples for that, or task.validation_data.drop_remainder drops them");
  }

  Task& task() { return *experiment_.task; }
  const RuntimeConfig& runtime() const { return experiment_.runtime; }

  // Returns where to report; the chief reports for all workers.
  std::ostream& out() {
    if (!strategy_.should_save_summary() || !part_->in_charge()) return silence_;
    return options_.output != nullptr ? *options_.output : std::cout;
  }

  // Returns the number of whole epochs in so many steps, or 0 if it is not known.
  int64_t epochs_in(int64_t step) const { return plan_.steps_per_epoch > 0 ? step / plan_.steps_per_epoch : 0; }

  std::string described() const {
    return c10::str(options_.experiment, " under ", strategy_.name(), ", ", strategy_.num_replicas_in_sync(),
                    " replica(s), ", data_.description);
  }

  void announce() {
    out() << described() << (trains_ ? c10::str(", ", plan_.train_steps, " steps") : "") << "\n";
    for (const Config::Change& change : config_.changes()) {
      out() << "  " << change.path << ": " << change.value << (change.origin.empty() ? "" : "  (" + change.origin + ")")
            << "\n";
    }
  }

  void write_params() {
    if (!strategy_.should_checkpoint() || !part_->in_charge()) return;
    AtomicFile params(folder_ / "params.yaml");
    params.write(params_text(options_.experiment, config_));
    params.commit();
  }

  void compile(std::size_t stage, const CompileOptions& options) {
    task().before_stage(stage, *model_);
    model_->compile(options);
  }

  void begin_stage(std::size_t stage) {
    const int64_t begin = stage == 0 ? 0 : stages_[stage - 1];
    compile(stage, plan_compile(experiment_, plan_, strategy_.num_replicas_in_sync(), begin));
  }

  static InputOptions input(bool shard) { return {.auto_shard = shard ? AutoShard::kAuto : AutoShard::kOff}; }

  void make_trainer() {
    trainer_ = std::make_shared<ModelTrainer>(
        *model_, ModelTrainerOptions{.train = data_.train,
                                     .validation = data_.validation,
                                     .input = input(data_.shard_train),
                                     .validation_input = input(data_.shard_validation),
                                     .ema = plan_.averages,
                                     .stages = trains_ ? stages_ : std::vector<int64_t>(),
                                     .begin_stage = [this](std::size_t stage) { begin_stage(stage); },
                                     .report_steps = plan_.summary_interval,
                                     .steps_per_epoch = plan_.steps_per_epoch,
                                     .train_steps = plan_.train_steps,
                                     .output = &out()});
  }

  ControllerOptions controller_options() {
    const auto evaluated = [this](const ActionInfo& info) {
      const int64_t step = step_of_weights_.value_or(info.step);
      summaries_->evaluated(step, epochs_in(step), info.logs, trainer_->examples_per_second(), *model_);
      observe("eval", step, info.logs);
    };
    ControllerOptions made{.evaluator = trainer_,
                           .eval_actions = {evaluated},
                           .checkpoint_dir = folder_,
                           .checkpoint_interval = plan_.checkpoint_interval,
                           .max_to_keep = plan_.max_to_keep,
                           .sharded_checkpoints = plan_.sharded_checkpoints};
    add_best_checkpoint(made);
    if (!trains_) return made;
    made.trainer = trainer_;
    made.train_actions = {Recovery(plan_.recovery),
                          [this](const ActionInfo& info) { observe("train", info.step, info.logs); }};
    if (const int64_t interval = plan_.compare_replicas_interval; interval > 0) {
      made.train_actions.push_back(CompareReplicas(*model_, interval));
    }
    made.summary_interval = plan_.summary_interval;
    made.summary_actions = {[this](const ActionInfo& info) {
      summaries_->trained(info.step, epochs_in(info.step), info.logs, trainer_->examples_per_second());
    }};
    made.steps_per_loop = plan_.steps_per_loop;
    made.init_fn = [this] { task().initialize(*model_); };
    if (plan_.saves_when_preempted) {
      watcher_.emplace();
      made.preempted = [this] { return watcher_->preempted(); };
    }
    return made;
  }

  void observe(const char* mode, int64_t step, const Logs& logs) const {
    if (options_.observe) options_.observe({step, epochs_in(step), mode, logs, trainer_->examples_per_second()});
  }

  void add_best_checkpoint(ControllerOptions& made) {
    if (!plan_.best) return;
    made.eval_actions.push_back(
        BestCheckpoint({.metric = plan_.best->metric,
                        .comparison = plan_.best->comparison,
                        .directory = folder_ / plan_.best->folder,
                        .save = [this](std::filesystem::path file) { save_weights_to(file += ".safetensors"); }}));
  }

  void save_weights_to(const std::filesystem::path& file) {
    trainer_->with_averages([&] {
      model_->save_weights(
          file, {{"experiment", options_.experiment}, {"global_step", std::to_string(trainer_->global_step())}});
    });
  }

  Logs train() {
    Controller controller(controller_options());
    write_params();  // the folder belongs to this run from here on
    const int64_t step = trainer_->global_step();
    if (step >= plan_.train_steps) {
      out() << "has been trained to step " << step << " already, of " << plan_.train_steps << "\n";
    } else if (step > 0) {
      out() << "goes on with the run that was interrupted after step " << step << "; without "
            << (folder_ / "ckpt-*").string() << " it would begin anew\n";
    }
    if (step == 0) summaries_->begin(config_, data_);
    Logs logs = train_with(controller);
    save_weights_to(folder_ / "model.safetensors");
    for (const auto& [name, value] : logs) out() << name << ": " << value << "\n";
    out() << "weights: " << (folder_ / "model.safetensors").string() << "\n";
    return logs;
  }

  Logs train_with(Controller& controller) {
    if (options_.mode == "train") return controller.train(plan_.train_steps);
    if (options_.mode == "train_and_post_eval") {
      controller.train(plan_.train_steps);
      return controller.evaluate(plan_.validation_steps);
    }
    const int64_t interval = options_.mode == "train_and_eval" ? plan_.validation_interval : plan_.checkpoint_interval;
    return controller.train_and_evaluate(plan_.train_steps, plan_.validation_steps, interval);
  }

  // Evaluates the newest checkpoint that is whole, or else the weights that a training has left at its end.
  Logs evaluate_once() {
    Controller controller(controller_options());
    const std::string name = CheckpointManagerOptions().name;
    std::vector<int64_t> left = checkpoint_steps(folder_, name);
    while (!left.empty() && !load(folder_ / (name + "-" + std::to_string(left.back())))) left.pop_back();
    if (left.empty()) {
      const auto metadata = model_->load_weights(folder_ / "model.safetensors");
      const auto of = metadata.find("experiment");
      if (of != metadata.end() && of->second != options_.experiment) {
        fail<InvalidArgument>("[train] ", (folder_ / "model.safetensors").string(), " holds the weights of ",
                              of->second, ", not of ", options_.experiment);
      }
      const auto step = metadata.find("global_step");
      step_of_weights_ = step == metadata.end() ? 0 : number_in<int64_t>(step->second, "[train] the weights' step");
    }
    Logs logs = controller.evaluate(plan_.validation_steps);
    out() << "evaluation";
    for (const auto& [name, value] : logs) out() << "  " << name << ": " << value;
    out() << "\n";
    return logs;
  }

  bool load(const std::filesystem::path& checkpoint) {
    try {
      trainer_->load(checkpoint);
      return true;
    } catch (const DataLoss& error) {
      log().warn("[train] {} is damaged and left out: {}", checkpoint.string(), error.what());
      return false;
    }
  }

  // Evaluates beside a training until that has ended.
  Logs evaluate_continuously() {
    Controller controller(controller_options());
    const int64_t done =
        controller.evaluate_continuously(plan_.train_steps, plan_.validation_steps, plan_.continuous_eval_timeout);
    out() << done << " checkpoint(s) of " << folder_.string() << " evaluated\n";
    return {};
  }

  ExperimentConfig experiment_;
  const Config& config_;
  std::optional<PreemptionWatcher> watcher_;  // lives longer than the strategy
  Strategy strategy_;
  RunOptions options_;
  std::unique_ptr<Part> part_;
  std::filesystem::path folder_;
  bool trains_;
  std::optional<RunSummaries> summaries_;
  std::ostream silence_{nullptr};
  TaskData data_;
  RunPlan plan_;
  std::vector<int64_t> stages_;
  std::optional<Model> model_;
  std::shared_ptr<ModelTrainer> trainer_;
  std::optional<int64_t> step_of_weights_;  // of weights that are evaluated without a checkpoint
};

}  // namespace

Logs run_experiment(const ExperimentConfig& experiment, const Config& config, const Strategy& strategy,
                    const RunOptions& options) {
  if (std::find(kRunModes.begin(), kRunModes.end(), options.mode) == kRunModes.end()) {
    fail<InvalidArgument>("[train] --mode=", options.mode, " is not known; there are ", run_modes());
  }
  return ExperimentRun(experiment, config, strategy, options)();
}

}  // namespace cohort
