// Reads the configuration of the trainer into numbers of steps and options of the training loop.
#include "models/run/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/fail.h"
#include "device/backend.h"

namespace cohort {

namespace {

// Fails if a folder in model_dir would be somewhere else.
void require_inside(const char* key, const std::string& folder) {
  const std::filesystem::path path = folder;
  if (!path.is_absolute() && std::find(path.begin(), path.end(), "..") == path.end()) return;
  fail<InvalidArgument>("[train] ", key, " is \"", folder, "\", wanted a folder in model_dir, without ..");
}

int64_t length_of(const TrainerConfig& trainer, int64_t epoch, bool trains) {
  if (trainer.train_steps > 0) return trainer.train_steps;
  const double epochs = trainer.train_epochs;
  const double whole = std::round(epochs * static_cast<double>(epoch));
  constexpr double kMostSteps = 9007199254740992.0;  // as many as a double counts
  if (!(whole < kMostSteps)) {
    fail<InvalidArgument>("[train] trainer.train_epochs is ", epochs, ", with ", epoch,
                          " steps each, wanted fewer than 2^53 steps");
  }
  const int64_t steps = epoch > 0 ? static_cast<int64_t>(whole) : 0;
  if (steps == 0 && trains) {
    fail<InvalidArgument>("[train] there is nothing to do: trainer.train_steps is 0 and trainer.train_epochs ", epochs,
                          epoch > 0 ? "" : ", of data whose size is not known");
  }
  return steps;
}

RecoveryOptions recovery_of(const TrainerConfig& trainer) {
  RecoveryOptions options{.max_trials = trainer.recovery_max_trials};
  if (options.max_trials < 0) return options;
  options.loss_upper_bound = trainer.loss_upper_bound;
  options.begin_steps = trainer.recovery_begin_steps;
  return options;
}

std::optional<RunPlan::Best> best_of(const TrainerConfig& trainer) {
  if (trainer.best_checkpoint_export_subdir->empty()) return std::nullopt;
  if (trainer.best_checkpoint_eval_metric->empty()) {
    fail<InvalidArgument>("[train] trainer.best_checkpoint_export_subdir is \"", trainer.best_checkpoint_export_subdir,
                          "\", but trainer.best_checkpoint_eval_metric does not say which evaluation is the best");
  }
  require_inside("trainer.best_checkpoint_export_subdir", trainer.best_checkpoint_export_subdir);
  const bool higher = trainer.best_checkpoint_metric_comp == "higher";
  return RunPlan::Best{.folder = trainer.best_checkpoint_export_subdir,
                       .metric = trainer.best_checkpoint_eval_metric,
                       .comparison = higher ? Comparison::kHigher : Comparison::kLower};
}

Optimizer scaled(const Optimizer& optimizer, const std::string& scale) {
  if (scale.empty()) return optimizer;  // the precision decides
  if (scale == "dynamic") return LossScaleOptimizer(optimizer);
  char* end = nullptr;
  const double number = std::strtod(scale.c_str(), &end);
  if (*end != '\0' || !(number > 0.0)) {
    fail<InvalidArgument>("[train] runtime.loss_scale is \"", scale, "\", wanted dynamic or a number above 0");
  }
  return LossScaleOptimizer(optimizer, {.initial_scale = number, .dynamic = false});
}

// Refuses graphs of steps that are to run as they are.
void require_functions(const ExperimentConfig& experiment) {
  const bool trains = experiment.trainer.train_tf_function;
  if (!experiment.runtime.run_eagerly && trains && experiment.trainer.eval_tf_function) return;
  fail<InvalidArgument>("[train] runtime.use_cuda_graph is true, but ",
                        experiment.runtime.run_eagerly ? "runtime.run_eagerly is true"
                        : trains                       ? "trainer.eval_tf_function is false"
                                                       : "trainer.train_tf_function is false",
                        ": the model cannot run in every step and be captured");
}

std::optional<bool> compiles(const ExperimentConfig& experiment) {
  const RuntimeConfig& runtime = experiment.runtime;
  if (!runtime.enable_xla && !runtime.use_cuda_graph) return std::nullopt;
  if (runtime.enable_xla && runtime.use_cuda_graph) {
    fail<InvalidArgument>("[train] runtime.enable_xla and runtime.use_cuda_graph are both true, wanted one of them");
  }
  if (runtime.use_cuda_graph) require_functions(experiment);
  const Strategy strategy = current_strategy();
  for (const LogicalDevice& device : strategy.worker_devices()) {
    const DeviceBackend& backend = backend_of(device.torch_device);
    if (runtime.enable_xla ? backend.records() : backend.captures()) continue;
    if (runtime.enable_xla) {
      fail<InvalidArgument>("[train] runtime.enable_xla is true, but a replica of ", strategy.name(), " is on ",
                            device.torch_device.str(),
                            ", where LibTorch has no XLA; wanted a strategy for devices of XLA");
    }
    fail<InvalidArgument>("[train] runtime.use_cuda_graph is true, but a replica of ", strategy.name(), " is on ",
                          device.torch_device.str(), ", which has no graphs; wanted --num_gpus of 1 or more");
  }
  return true;
}

}  // namespace

std::string run_modes() {
  std::string names;
  for (const char* mode : kRunModes) names += c10::str(names.empty() ? "" : ", ", mode);
  return names;
}

RunPlan plan_run(const TrainerConfig& trainer, const TaskData& data, bool trains) {
  RunPlan plan{.train_steps = length_of(trainer, data.steps_per_epoch, trains),
               .steps_per_epoch = data.steps_per_epoch,
               .validation_steps = trainer.validation_steps,
               .max_to_keep = trainer.max_to_keep,
               .sharded_checkpoints = trainer.sharded_checkpoints,
               .continuous_eval_timeout = std::chrono::seconds(trainer.continuous_eval_timeout),
               .saves_when_preempted = trainer.preemption_on_demand_checkpoint,
               .compare_replicas_interval = trainer.compare_replicas_interval,
               .recovery = recovery_of(trainer),
               .averages = trainer.optimizer_config.averages(),
               .best = best_of(trainer),
               .summaries = {.validation_folder = trainer.validation_summary_subdir,
                             .images = trainer.summary_images,
                             .histograms = trainer.summary_histograms}};
  const int64_t whole = plan.steps_per_epoch > 0 ? plan.steps_per_epoch : plan.train_steps;
  const auto interval = [&](int64_t given) { return given > 0 ? given : whole; };
  require_inside("trainer.validation_summary_subdir", plan.summaries.validation_folder);
  plan.steps_per_loop = interval(trainer.steps_per_loop);
  plan.summary_interval = interval(trainer.summary_interval);
  plan.checkpoint_interval = interval(trainer.checkpoint_interval);
  plan.validation_interval = interval(trainer.validation_interval);
  return plan;
}

CompileOptions plan_compile(const ExperimentConfig& experiment, const RunPlan& plan, int replicas, int64_t begin) {
  const Optimizer optimizer = experiment.trainer.optimizer_config.build(
      std::max<int64_t>(plan.train_steps, 1), replicas, begin, experiment.task->l2_weight_decay());
  CompileOptions options{.optimizer = scaled(optimizer, experiment.runtime.loss_scale),
                         .precision = parse_precision(*experiment.runtime.mixed_precision_dtype),
                         .jit_compile = compiles(experiment),
                         .run_eagerly = experiment.runtime.run_eagerly || !experiment.trainer.train_tf_function,
                         .eval_run_eagerly = experiment.runtime.run_eagerly || !experiment.trainer.eval_tf_function};
  experiment.task->add_losses(options);
  return options;
}

namespace {

// Returns the names in the logs of an evaluation.
std::vector<std::string> measured(const CompileOptions& options) {
  std::vector<std::string> names = {"loss"};
  const auto other_of = [&](const std::string& usual) {
    return std::find_if(options.log_names.begin(), options.log_names.end(),
                        [&](const auto& each) { return each.first == usual; });
  };
  const auto add = [&](const std::string& usual) {
    const auto other = other_of(usual);
    names.push_back(other == options.log_names.end() ? usual : other->second);
  };
  for (const Metric& metric : options.metrics) add(metric.name());
  const bool several = options.losses.size() > 1;
  for (const auto& [output, loss] : options.losses) {
    if (loss && (several || other_of(output + "_loss") != options.log_names.end())) add(output + "_loss");
  }
  for (const auto& [output, metrics] : options.output_metrics) {
    for (const Metric& metric : metrics) add((several ? output + "_" : "") + metric.name());
  }
  return names;
}

}  // namespace

void check_best(const RunPlan& plan, const CompileOptions& options) {
  if (!plan.best) return;
  const std::vector<std::string> known = measured(options);
  if (std::find(known.begin(), known.end(), plan.best->metric) != known.end()) return;
  fail<InvalidArgument>("[train] trainer.best_checkpoint_eval_metric is \"", plan.best->metric,
                        "\", but evaluations have ", c10::Join(", ", known));
}

}  // namespace cohort
