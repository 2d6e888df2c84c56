// `cohort train`: flags become layers of a configuration, which an experiment is run with. Most flags are fields of the
// configuration under shorter names, and are made of the descriptions of these fields.
#include "models/command/train_command.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/access.h"
#include "base/atomic_file.h"
#include "base/error_text.h"
#include "base/extension.h"
#include "base/fail.h"
#include "base/regular_file.h"
#include "cohort/models/strategy_flags.h"
#include "cohort/preemption.h"
#include "cohort/trace.h"
#include "models/command/decimals.h"
#include "models/command/experiment_flags.h"
#include "models/command/mesh_makers.h"
#include "models/command/timeline_part.h"
#include "models/run/params_file.h"
#include "models/run/partitions.h"
#include "models/run/plan.h"
#include "strategy/core.h"

namespace cohort {

namespace {

constexpr int kFailure = 1;
// Flags that may stand alone.
constexpr std::array kSwitches = {"--insecure", "--sequence_parallel", "--vocab_parallel", "--mlp_parallel",
                                  "--deterministic"};

// A flag that sets one field, as the description of the field says.
struct PlainFlag {
  std::string name;
  std::string path;
  std::string help;
  std::string default_value;         // empty: the experiment decides
  std::optional<std::string> given;  // a flag that is not given sets nothing
};

// Returns the flags that the fields of all experiments have.
std::vector<PlainFlag> plain_flags() {
  RuntimeConfig runtime;
  TrainerConfig trainer;
  const Config config([&](ConfigFields& fields) {
    fields.nest("runtime", runtime);
    fields.nest("trainer", trainer);
  });
  std::vector<PlainFlag> flags;
  for (const ConfigFields::Field& field : config.fields()) {
    if (field.flag.empty()) continue;
    std::string choices = field.names.empty() ? "" : ": " + field.names;
    for (const std::string& each : field.choices) {
      if (!each.empty()) choices += (choices.empty() ? "; one of " : ", ") + each;
    }
    // The defaults of the trainer are the experiment's.
    std::string default_value = field.path.starts_with("runtime.") ? field.default_value : "";
    std::erase(default_value, '"');
    flags.push_back({.name = field.flag,
                     .path = field.path,
                     .help = field.help + choices,
                     .default_value = default_value,
                     .given = std::nullopt});
  }
  return flags;
}

struct TrainFlags {
  ExperimentFlags experiment;
  std::string help_experiment;
  // Those that were not given set nothing.
  std::optional<std::string> data_dir;
  std::vector<PlainFlag> plain = plain_flags();
  std::optional<std::filesystem::path> trace;
  RunOptions run;
  std::vector<RunObserver> observers;

  const std::optional<std::string>& given(std::string_view name) const {
    return std::find_if(plain.begin(), plain.end(), [&](const PlainFlag& flag) { return name == flag.name; })->given;
  }
};

// Fails if the flags make no sense, whatever the experiment is.
void check(const TrainFlags& flags) {
  if (flags.given("--train_steps") && flags.given("--epochs")) {
    fail<InvalidArgument>("[train] --train_steps=", *flags.given("--train_steps"),
                          " and --epochs=", *flags.given("--epochs"), " both say how long to train; give one of them");
  }
  if (flags.data_dir && flags.data_dir->empty()) fail<InvalidArgument>("[train] --data_dir is empty, wanted a folder");
}

// Sets the fields of an evaluation to those of the training in model_dir: data, model and trainer. Where the training
// ran is not where the evaluation runs, and a folder that is given now takes the place of the training's data.
void apply_training(Config& config, const TrainFlags& flags) {
  const bool evaluates = flags.run.mode == "eval" || flags.run.mode == "continuous_eval";
  if (!evaluates || flags.run.model_dir.empty()) return;
  const std::filesystem::path file = flags.run.model_dir / "params.yaml";
  const auto text = read_regular_file(file, "train");
  if (!text) return;
  const std::string trained = experiment_of_params(*text);
  if (!trained.empty() && trained != flags.experiment.name) {
    fail<InvalidArgument>("[train] ", file.string(), " is of a training of ", trained, ", wanted ",
                          flags.experiment.name, ", which --experiment names");
  }
  config.apply_yaml(*text, file.string());
  constexpr std::array kKept = {"runtime.seed", "runtime.mixed_precision_dtype"};
  for (const ConfigFields::Field& field : config.fields()) {
    const bool where =
        field.path.starts_with("runtime.") && std::find(kKept.begin(), kKept.end(), field.path) == kKept.end();
    const bool place = field.path.ends_with("_data.input_path") || field.path.ends_with("_data.tfds_data_dir");
    if (where || (place && flags.data_dir)) config.reset(field.path);
  }
}

// Sets the fields by all layers, each over the one before.
void configure(Config& config, Task& task, const TrainFlags& flags) {
  apply_training(config, flags);
  flags.experiment.apply_files(config);
  for (const PlainFlag& flag : flags.plain) {
    if (flag.given) config.set(flag.path, *flag.given, flag.name);
  }
  // --epochs counts whatever a file says of steps, and --train_steps whatever it says of epochs.
  if (flags.given("--epochs")) config.set("trainer.train_steps", "0", "--epochs");
  if (flags.given("--train_steps")) config.reset("trainer.train_epochs");
  if (flags.data_dir) task.set_data(config, *flags.data_dir, "--data_dir");
  flags.experiment.apply_overrides(config, task);
  config.lock();
}

int print_help(const std::string& name) {
  const Experiment experiment = find_experiment(name);
  ExperimentConfig made = experiment.make();
  const Config config([&](ConfigFields& fields) { made.describe(fields); });
  std::cout << experiment.name << ": " << experiment.description << "\n\n" << config.help();
  return 0;
}

// Returns the file of a worker: trace.json, trace.worker-1.json, ...
std::filesystem::path trace_file(std::filesystem::path file, int rank) {
  if (rank == 0) return file;
  const std::filesystem::path extension = file.extension();
  return file.replace_extension().string() + ".worker-" + std::to_string(rank) + extension.string();
}

// Tells what the threads did, to the reader and to cohort report.
void tell(const TraceSummary& summary, const StrategyFlags& strategy, const std::filesystem::path& model_dir) {
  nlohmann::ordered_json json{
      {"seconds", summary.seconds}, {"threads", nlohmann::json::object()}, {"parts", nlohmann::json::object()}};
  for (const auto& [thread, categories] : summary.seconds_of) {
    std::cout << "  " << thread << ":";
    for (const auto& [category, seconds] : categories) {
      std::cout << "  " << category << " " << std::llround(100.0 * seconds / summary.seconds) << "%";
      json["threads"][thread][category] = seconds;
      nlohmann::ordered_json& parts = json["parts"][thread][category] = nlohmann::json::array();
      for (const double part : summary.seconds_in_parts.at(thread).at(category)) {
        parts.push_back(std::round(part * 1e6) / 1e6);
      }
    }
    std::cout << "\n";
  }
  for (const TimelinePart& part : extensions<TimelinePart>()) part.add(summary, strategy, json, std::cout);
  if (summary.left_out > 0) std::cout << "  " << summary.left_out << " spans are left out of the trace\n";
  AtomicFile file(model_dir / "timeline.json");
  file.write(json.dump() + "\n");
  file.commit();
}

void run_traced(const ExperimentConfig& experiment, const Config& config, const Strategy& strategy,
                const TrainFlags& flags) {
  if (!flags.trace) {
    run_experiment(experiment, config, strategy, flags.run);
    return;
  }
  const int rank = Access::core(strategy)->worker_rank();
  TraceOptions options{.file = trace_file(*flags.trace, rank), .process = "worker " + std::to_string(rank)};
  for (const TimelinePart& part : extensions<TimelinePart>()) options.close_up = part.close_up;
  Trace trace(options);
  name_traced_thread("replica 0");
  run_experiment(experiment, config, strategy, flags.run);
  const TraceSummary summary = trace.finish();
  if (rank > 0) return;
  std::cout << "trace: " << flags.trace->string() << ", " << summary.seconds << " s\n";
  tell(summary, experiment.runtime, flags.run.model_dir);
}

int train(TrainFlags flags) {
  if (!flags.help_experiment.empty()) return print_help(flags.help_experiment);
  check(flags);
  const Experiment experiment = find_experiment(flags.experiment.name);
  ExperimentConfig made = experiment.make();
  Config config([&](ConfigFields& fields) { made.describe(fields); });
  configure(config, *made.task, flags);
  if (is_evaluator(made.runtime) && flags.run.mode != "eval") flags.run.mode = "continuous_eval";
  divide_inputs(made.runtime, *made.task, flags.run.mode);
  if (!made.runtime.mesh->empty()) mesh_maker(made.runtime).take_layout(made.runtime, *made.task);
  flags.run.experiment = experiment.name;
  for (const RunObserver& observer : flags.observers) observer.begin(flags.run);
  const Strategy strategy = make_strategy(made.runtime);
  for (const RunObserver& observer : flags.observers) observer.met(strategy);
  run_traced(made, config, strategy, flags);
  return 0;
}

template <typename... Kinds>
bool is_any(const std::exception& error) {
  return ((dynamic_cast<const Kinds*>(&error) != nullptr) || ...);
}

int status_after(const std::exception& error) {
  if (is_any<Preempted>(error)) return kPreemptedExitCode;
  return is_any<InvalidArgument, NotFound, Unimplemented>(error) ? kWrongCall : kFailure;
}

}  // namespace

std::function<int()> add_train_flags(CLI::App& app) {
  const auto flags = std::make_shared<TrainFlags>();
  app.footer("Every key of an experiment's configuration: --help_experiment=NAME. Experiments:" + experiment_names());
  app.add_option("--experiment", flags->experiment.name, "experiment to train (needed)");
  app.add_option("--help_experiment", flags->help_experiment, "print every key of an experiment's configuration");
  app.add_option("--mode", flags->run.mode, "what to do: " + run_modes())->capture_default_str();
  app.add_option(
      "--model_dir", flags->run.model_dir,
      "folder for checkpoints, summaries, weights and the configuration (needed); a run that was interrupted "
      "there goes on");
  app.add_option(
      "--data_dir", flags->data_dir,
      "folder of the data; without it the drawn digits, shapes, sums or clicks of those experiments that have such");
  for (PlainFlag& flag : flags->plain) {
    if (std::find(kSwitches.begin(), kSwitches.end(), flag.name) != kSwitches.end()) {
      app.add_flag(flag.name, flag.given, flag.help);  // the configuration knows which texts are truths
    } else {
      app.add_option(flag.name, flag.given, flag.help)->default_str(flag.default_value);
    }
  }
  flags->experiment.add_to(app);
  CLI::Option* const tpu = app.get_option_no_throw("--tpu");
  if (tpu != nullptr) tpu->expected(0, 1);  // --tpu= is the TPU that the environment speaks of
  app.add_option(
      "--trace", flags->trace,
      "file for a picture of what every thread did, for chrome://tracing or ui.perfetto.dev; that of worker 2 "
      "gets the name FILE.worker-2.json");
  for (const RunObserverMaker& maker : extensions<RunObserverMaker>()) flags->observers.push_back(maker.make(app));
  return [flags] { return train(*flags); };
}

int exit_status(const std::function<int()>& command) {
  try {
    return command();
  } catch (const std::exception& error) {
    std::cerr << error_text(error) << "\n";
    return status_after(error);
  }
}

int train_main(int argc, char** argv) {
  CLI::App app("Trains or evaluates an experiment", argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "");
  const auto command = add_train_flags(app);
  read_decimals(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help
    return app.exit(asked);
  } catch (const CLI::ParseError& error) {
    std::cerr << "[train] " << error.what() << "\nRun with --help for the flags.\n";
    return kWrongCall;
  }
  return exit_status(command);
}

}  // namespace cohort
