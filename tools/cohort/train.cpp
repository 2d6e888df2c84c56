// cohort train: trains or evaluates a registered experiment.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/fail.h"
#include "cohort/checkpoint.h"
#include "cohort/parameter_server_strategy.h"
#include "cohort/preemption.h"
#include "cohort/sidecar_evaluator.h"
#include "commands.h"
#include "models/experiment.h"
#include "strategy_flags.h"

namespace cohort::cli {

namespace {

struct TrainFlags {
  std::string experiment;
  std::string mode = "train_and_eval";
  std::string model_dir;
  std::string data_dir;
  StrategyFlags strategy;
  uint64_t seed = 1;
  int64_t epochs = 0;
  int64_t batch_size = 0;
  int64_t save_freq = 0;
};

void check(const TrainFlags& flags) {
  if (flags.experiment.empty()) {
    find_experiment(flags.experiment);  // names those that there are
  }
  const std::array modes = {"train", "eval", "train_and_eval", "continuous_eval"};
  if (std::find(modes.begin(), modes.end(), flags.mode) == modes.end()) {
    fail<InvalidArgument>("[train] --mode=", flags.mode,
                          " is not known; train, eval, train_and_eval and continuous_eval are");
  }
  if (flags.model_dir.empty())
    fail<InvalidArgument>("[train] --model_dir is missing: the folder for weights and metrics");
  if (flags.epochs < 0) fail<InvalidArgument>("[train] --epochs is ", flags.epochs, ", wanted 1 or more");
  if (flags.save_freq < 0) fail<InvalidArgument>("[train] --save_freq is ", flags.save_freq, ", wanted 0 or more");
  if (flags.batch_size < 0) fail<InvalidArgument>("[train] --batch_size is ", flags.batch_size, ", wanted 1 or more");
}

std::filesystem::path make_folder(const std::string& name) {
  std::error_code error;
  std::filesystem::create_directories(name, error);
  if (error) fail<InvalidArgument>("[train] --model_dir=", name, " cannot be made: ", error.message());
  return name;
}

void print_logs(std::ostream& out, const char* title, const Logs& logs) {
  out << title;
  for (const auto& [name, value] : logs) out << "  " << name << ": " << value;
  out << "\n";
}

// One run, everything checked.
class Run {
 public:
  Run(const TrainFlags& flags, const Experiment& experiment, Strategy strategy)
      : flags_(flags),
        experiment_(experiment),
        strategy_(std::move(strategy)),
        servers_(ParameterServerStrategy::of(strategy_)),
        folder_(make_folder(flags.model_dir)),
        epochs_(flags.epochs > 0 ? flags.epochs : experiment.epochs),
        batch_(flags.batch_size > 0 ? flags.batch_size : experiment.batch_size),
        evaluator_(is_evaluator(flags.strategy)),
        ended_(evaluator_ ? finished_run(backup()) : "") {}

  int operator()() {
    torch::manual_seed(flags_.seed);
    strategy_.set_seed(flags_.seed);
    const auto scope = strategy_.scope();
    const datasets::TrainTest data = experiment_.data(flags_.data_dir, flags_.seed);
    out() << experiment_.name << " under " << strategy_.name() << ", " << strategy_.num_replicas_in_sync()
          << " replica(s), " << (flags_.data_dir.empty() ? "drawn digits" : flags_.data_dir) << ", batch " << batch_
          << "\n";
    Sequential model = experiment_.model();
    if (servers_) model.build(shape_of(data.train));  // all tasks know the variables before they serve
    const int64_t steps = epochs_ * ((data.train.cardinality() + batch_ - 1) / batch_);
    model.compile(experiment_.compile(steps));
    if (serves()) return 0;
    if (flags_.mode == "eval") {
      evaluate(model, data);
    } else if (flags_.mode == "continuous_eval" || evaluator_) {
      follow(model, data);
    } else {
      train(model, data);
    }
    return 0;
  }

 private:
  static Shape shape_of(const Dataset& data) { return data.iterator().next()->x.sizes().vec(); }

  // Whether this process only did what the chief asked for. To evaluate there is nothing to ask for.
  bool serves() const {
    if (!servers_) return false;
    const bool trains = flags_.mode == "train" || flags_.mode == "train_and_eval";
    return trains ? servers_->serve() : !servers_->is_coordinator();
  }

  // The chief speaks for all workers.
  std::ostream& out() {
    const bool speaks = servers_ ? servers_->is_coordinator() : strategy_.should_save_summary();
    return speaks ? std::cout : silence_;
  }
  std::filesystem::path backup() const { return folder_ / "backup"; }
  std::filesystem::path weights() const { return folder_ / "model.safetensors"; }
  CallbackPtr metrics() const { return MetricsWriter(folder_ / "metrics.jsonl"); }

  void train(Sequential& model, const datasets::TrainTest& data) {
    if (goes_on()) {
      out() << "goes on with the run that was interrupted; without " << backup().string() << " it would begin anew\n";
    }
    // In its place before the backups come to their end: a run that is killed between the two goes on.
    const auto save = LambdaCallback({.on_train_end = [&](const RunInfo&, const Logs&) {
      model.save_weights(weights(), {{"experiment", std::string(experiment_.name)}});
    }});
    watcher_.emplace();
    FitOptions options{.epochs = epochs_,
                       .callbacks = {metrics(), TerminateOnNaN({.fail = true}), save,
                                     BackupAndRestore({.directory = backup(),
                                                       .save_freq = flags_.save_freq,
                                                       .delete_checkpoint = false,
                                                       .preempted = [&] { return watcher_->preempted(); }})}};
    if (flags_.mode == "train_and_eval") options.validation_data = data.test.batch(batch_);
    const auto size = std::max<int64_t>(data.train.cardinality(), 1);
    const History history = model.fit(data.train.shuffle(size, {.seed = flags_.seed}).batch(batch_), options);
    for (const std::string& name : history.names()) {
      out() << name << ": " << history[name].back() << "\n";
    }
    out() << "weights: " << weights().string() << "\n";
  }

  // Whether there are backups of a run that has not come to its end; those of one that has are removed.
  bool goes_on() const {
    if (!strategy_.should_checkpoint() || !std::filesystem::exists(backup())) return false;
    CheckpointManager backups(backup(), {.name = "backup"});
    if (!backups.finished()) return backups.latest().has_value();
    backups.clear();
    return false;
  }

  // Beside the training, until that has ended.
  void follow(Sequential& model, const datasets::TrainTest& data) {
    SidecarEvaluator evaluator(model, data.test.batch(batch_),
                               {.checkpoint_dir = backup(),
                                .follow = {.name = "backup", .skip_run = ended_},
                                .evaluate = {.callbacks = {metrics()}}});
    const int64_t done = evaluator.start();
    out() << done << " checkpoint(s) of " << backup().string() << " evaluated\n";
  }

  void evaluate(Sequential& model, const datasets::TrainTest& data) {
    if (!model.built()) model.build(shape_of(data.test));
    const auto metadata = model.load_weights(weights());
    const auto of = metadata.find("experiment");
    if (of != metadata.end() && of->second != experiment_.name) {
      fail<InvalidArgument>("[train] ", weights().string(), " holds the weights of ", of->second, ", not of ",
                            experiment_.name);
    }
    print_logs(out(), "evaluation", model.evaluate(data.test.batch(batch_), {.callbacks = {metrics()}}));
  }

  TrainFlags flags_;
  const Experiment& experiment_;
  std::optional<PreemptionWatcher> watcher_;  // from the training's beginning until after the strategy's end
  Strategy strategy_;
  std::optional<ParameterServerStrategy> servers_;  // the same, where it is one
  std::filesystem::path folder_;
  int64_t epochs_;
  int64_t batch_;
  bool evaluator_;     // the cluster's
  std::string ended_;  // the run before this one, for the evaluator
  std::ostream silence_{nullptr};
};

}  // namespace

Command add_train(CLI::App& app) {
  const auto flags = std::make_shared<TrainFlags>();
  std::string names;
  for (const Experiment& experiment : experiments()) {
    names += c10::str("\n  ", experiment.name, ": ", experiment.description);
  }
  app.footer("Experiments:" + names);
  app.add_option("--experiment", flags->experiment, "what to train, see below");
  app.add_option("--mode", flags->mode,
                 "train, eval, train_and_eval or continuous_eval (of the backups, beside a training)")
      ->capture_default_str();
  app.add_option("--model_dir", flags->model_dir,
                 "folder for model.safetensors and metrics.jsonl; a run that was interrupted there goes on");
  app.add_option("--data_dir", flags->data_dir, "folder of the data; without, built-in data");
  app.add_option("--seed", flags->seed, "of everything random")->capture_default_str();
  app.add_option("--epochs", flags->epochs, "passes over the data; 0: the experiment's default");
  app.add_option("--batch_size", flags->batch_size, "global batch; 0: the experiment's default");
  app.add_option("--save_freq", flags->save_freq, "batches between backups of the run; 0: one after every epoch");
  add_strategy_flags(app, flags->strategy);
  return [flags] {
    check(*flags);
    return Run(*flags, find_experiment(flags->experiment), make_strategy(flags->strategy))();
  };
}

}  // namespace cohort::cli
