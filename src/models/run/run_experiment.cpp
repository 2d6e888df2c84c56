#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>

#include "base/atomic_file.h"
#include "base/fail.h"
#include "base/log.h"
#include "checkpoint/series.h"
#include "cohort/actions.h"
#include "cohort/experiment.h"
#include "cohort/parameter_server_strategy.h"
#include "cohort/preemption.h"
#include "models/run/summaries.h"
#include "strategy/core.h"

namespace cohort {

namespace {

constexpr std::array kModes = {"train",
                               "eval",
                               "train_and_eval",
                               "train_and_post_eval",
                               "continuous_eval",
                               "continuous_train_and_eval",
                               "train_and_validate"};

std::filesystem::path make_folder(const std::filesystem::path& folder) {
  if (folder.empty()) fail<InvalidArgument>("[train] --model_dir is missing: the folder for checkpoints and metrics");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail<InvalidArgument>("[train] --model_dir=", folder.string(), " cannot be made: ", error.message());
  return folder;
}

class ExperimentRun {
 public:
  ExperimentRun(const ExperimentConfig& experiment, const Config& config, const Strategy& strategy,
                const RunOptions& options)
      : experiment_(experiment),
        config_(config),
        strategy_(strategy),
        options_(options),
        servers_(ParameterServerStrategy::of(strategy)),
        folder_(make_folder(options.model_dir)),
        trains_(options.mode.find("train") != std::string::npos),
        summaries_(folder_, experiment.trainer, strategy.should_save_summary() && in_charge()) {}

  Logs operator()() {
    torch::manual_seed(static_cast<uint64_t>(runtime().seed));
    strategy_.set_seed(static_cast<uint64_t>(runtime().seed));
    const auto scope = strategy_.scope();
    // Who follows a training knows by its data how long that is.
    data_ = task().build_inputs(runtime(), trains_ || options_.mode == "continuous_eval");
    count_steps();
    check_stages();
    model_.emplace(task().build_model());
    announce();
    compile(0);
    if (serves()) return {};
    make_trainer();
    if (options_.mode == "eval") return evaluate_once();
    if (options_.mode == "continuous_eval") return evaluate_continuously();
    return train();
  }

 private:
  Task& task() { return *experiment_.task; }
  const TrainerConfig& trainer() const { return experiment_.trainer; }
  const RuntimeConfig& runtime() const { return experiment_.runtime; }

  // The chief speaks for all workers.
  bool in_charge() const { return !servers_ || servers_->is_coordinator(); }
  std::ostream& out() {
    if (!strategy_.should_save_summary() || !in_charge()) return silence_;
    return options_.output != nullptr ? *options_.output : std::cout;
  }

  // Whether this process only did what the chief asked for. To evaluate there is nothing to ask for.
  bool serves() const {
    if (!servers_) return false;
    return trains_ ? servers_->serve() : !servers_->is_coordinator();
  }

  void count_steps() {
    const int64_t epoch = data_.steps_per_epoch;
    if (trainer().train_steps > 0) {
      train_steps_ = trainer().train_steps;
    } else if (trainer().train_epochs > 0.0 && epoch > 0) {
      train_steps_ = std::llround(trainer().train_epochs * static_cast<double>(epoch));
    }
    if (train_steps_ > 0 || !trains_) return;
    fail<InvalidArgument>("[train] there is nothing to do: trainer.train_steps is ", trainer().train_steps,
                          " and trainer.train_epochs ", trainer().train_epochs,
                          epoch > 0 ? "" : ", of data whose size is not known");
  }

  void check_stages() {
    if (!servers_ || !trains_ || task().stages().empty()) return;
    fail<Unimplemented>("[train] the training changes after step ", task().stages().front(),
                        ", which parameter servers do not follow: their variables are made before the first step");
  }

  int64_t interval(int64_t given) const {
    if (given > 0) return given;
    return data_.steps_per_epoch > 0 ? data_.steps_per_epoch : train_steps_;
  }

  // Returns the number of whole epochs in so many steps, or 0 if it is not known.
  int64_t epochs_in(int64_t step) const { return data_.steps_per_epoch > 0 ? step / data_.steps_per_epoch : 0; }

  void announce() {
    out() << options_.experiment << " under " << strategy_.name() << ", " << strategy_.num_replicas_in_sync()
          << " replica(s), " << data_.description << (trains_ ? c10::str(", ", train_steps_, " steps") : "") << "\n";
    for (const Config::Change& change : config_.changes()) {
      out() << "  " << change.path << ": " << change.value << (change.origin.empty() ? "" : "  (" + change.origin + ")")
            << "\n";
    }
  }

  void write_params() {
    if (!strategy_.should_checkpoint() || !in_charge()) return;
    AtomicFile params(folder_ / "params.yaml");
    params.write(config_.to_yaml());
    params.commit();
  }

  void compile(std::size_t stage) {
    task().before_stage(stage, *model_);
    const int64_t begin = stage == 0 ? 0 : task().stages()[stage - 1];
    const Optimizer optimizer = trainer().optimizer_config.build(
        std::max<int64_t>(train_steps_, 1), strategy_.num_replicas_in_sync(), begin, task().l2_weight_decay());
    model_->compile({.optimizer = scaled(optimizer),
                     .loss = task().build_loss(),
                     .metrics = task().build_metrics(),
                     .precision = parse_precision(runtime().mixed_precision_dtype)});
  }

  Optimizer scaled(const Optimizer& optimizer) const {
    const std::string& scale = runtime().loss_scale;
    if (scale.empty()) return optimizer;  // what the precision wants
    if (scale == "dynamic") return LossScaleOptimizer(optimizer);
    char* end = nullptr;
    const double number = std::strtod(scale.c_str(), &end);
    if (*end != '\0') {
      fail<InvalidArgument>("[train] runtime.loss_scale is \"", scale, "\", wanted dynamic or a number");
    }
    return LossScaleOptimizer(optimizer, {.initial_scale = number, .dynamic = false});
  }

  static InputOptions input(bool shard) { return {.auto_shard = shard ? AutoShard::kAuto : AutoShard::kOff}; }

  void make_trainer() {
    trainer_ = std::make_shared<ModelTrainer>(
        *model_, ModelTrainerOptions{.train = data_.train,
                                     .validation = data_.validation,
                                     .input = input(data_.shard_train),
                                     .validation_input = input(data_.shard_validation),
                                     .ema = trainer().optimizer_config.ema,
                                     .stages = trains_ ? task().stages() : std::vector<int64_t>(),
                                     .begin_stage = [this](std::size_t stage) { compile(stage); },
                                     .report_steps = interval(trainer().summary_interval),
                                     .steps_per_epoch = data_.steps_per_epoch,
                                     .train_steps = train_steps_,
                                     .output = &out()});
  }

  ControllerOptions controller_options() {
    const auto evaluated = [this](const ActionInfo& info) {
      summaries_.evaluated(info.step, epochs_in(info.step), info.logs, trainer_->examples_per_second(), *model_);
    };
    ControllerOptions made{.evaluator = trainer_,
                           .eval_actions = {evaluated},
                           .checkpoint_dir = folder_,
                           .checkpoint_interval = interval(trainer().checkpoint_interval),
                           .max_to_keep = trainer().max_to_keep};
    add_best_checkpoint(made);
    if (!trains_) return made;
    made.trainer = trainer_;
    made.train_actions = {Recovery({.loss_upper_bound = trainer().loss_upper_bound,
                                    .begin_steps = trainer().recovery_begin_steps,
                                    .max_trials = trainer().recovery_max_trials})};
    made.summary_interval = interval(trainer().summary_interval);
    made.summary_actions = {[this](const ActionInfo& info) {
      summaries_.trained(info.step, epochs_in(info.step), info.logs, trainer_->examples_per_second());
    }};
    made.steps_per_loop = interval(trainer().steps_per_loop);
    made.init_fn = [this] { task().initialize(*model_); };
    if (trainer().preemption_on_demand_checkpoint) {
      watcher_.emplace();
      made.preempted = [this] { return watcher_->preempted(); };
    }
    return made;
  }

  void add_best_checkpoint(ControllerOptions& made) {
    if (trainer().best_checkpoint_export_subdir.empty() || trainer().best_checkpoint_eval_metric.empty()) return;
    const bool higher = trainer().best_checkpoint_metric_comp == "higher";
    made.eval_actions.push_back(
        BestCheckpoint({.metric = trainer().best_checkpoint_eval_metric,
                        .comparison = higher ? Comparison::kHigher : Comparison::kLower,
                        .directory = folder_ / trainer().best_checkpoint_export_subdir,
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
    write_params();  // from here on the folder is this run's
    const int64_t step = trainer_->global_step();
    if (step >= train_steps_) {
      out() << "has been trained to step " << step << " already, of " << train_steps_ << "\n";
    } else if (step > 0) {
      out() << "goes on with the run that was interrupted after step " << step << "; without "
            << (folder_ / "ckpt-*").string() << " it would begin anew\n";
    }
    if (step == 0) summaries_.begin(config_, data_);
    Logs logs = train_with(controller);
    save_weights_to(folder_ / "model.safetensors");
    for (const auto& [name, value] : logs) out() << name << ": " << value << "\n";
    out() << "weights: " << (folder_ / "model.safetensors").string() << "\n";
    return logs;
  }

  Logs train_with(Controller& controller) {
    if (options_.mode == "train") return controller.train(train_steps_);
    if (options_.mode == "train_and_post_eval") {
      controller.train(train_steps_);
      return controller.evaluate(trainer().validation_steps);
    }
    const int64_t given =
        options_.mode == "train_and_eval" ? trainer().validation_interval : trainer().checkpoint_interval;
    return controller.train_and_evaluate(train_steps_, trainer().validation_steps, interval(given));
  }

  // Of the newest checkpoint that is whole, or else of the weights that a training left at its end.
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
    }
    Logs logs = controller.evaluate(trainer().validation_steps);
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

  // Beside the training, until that has ended.
  Logs evaluate_continuously() {
    Controller controller(controller_options());
    const int64_t done = controller.evaluate_continuously(train_steps_, trainer().validation_steps,
                                                          std::chrono::seconds(trainer().continuous_eval_timeout));
    out() << done << " checkpoint(s) of " << folder_.string() << " evaluated\n";
    return {};
  }

  ExperimentConfig experiment_;
  const Config& config_;
  std::optional<PreemptionWatcher> watcher_;  // until after the strategy's end
  Strategy strategy_;
  RunOptions options_;
  std::optional<ParameterServerStrategy> servers_;  // the strategy, where it is one
  std::filesystem::path folder_;
  bool trains_;
  RunSummaries summaries_;
  std::ostream silence_{nullptr};
  TaskData data_;
  int64_t train_steps_ = 0;
  std::optional<Model> model_;
  std::shared_ptr<ModelTrainer> trainer_;
};

}  // namespace

Logs run_experiment(const ExperimentConfig& experiment, const Config& config, const Strategy& strategy,
                    const RunOptions& options) {
  if (std::find(kModes.begin(), kModes.end(), options.mode) == kModes.end()) {
    std::string known;
    for (const char* mode : kModes) known += c10::str(known.empty() ? "" : ", ", mode);
    fail<InvalidArgument>("[train] --mode=", options.mode, " is not known; there are ", known);
  }
  return ExperimentRun(experiment, config, strategy, options)();
}

}  // namespace cohort
