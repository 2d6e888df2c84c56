// An experiment in one file: what `cohort train` does with its own, for a program that registers another one.
// Usage: example_own_experiment MODEL_DIR [key=value,...] ...
#include <filesystem>
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

ExperimentConfig small_digits() {
  auto task = std::make_shared<ImageClassificationTask>();
  task->builtin_data = "digits";
  task->model.num_classes = 10;
  task->model.input_size = {28, 28, 1};
  task->model.backbone.type = "mlp";
  task->top_k = 1;
  ExperimentConfig config{.task = task};
  config.trainer.train_steps = 200;
  config.trainer.validation_interval = 100;
  config.trainer.optimizer_config.optimizer.type = "adamw";
  config.trainer.optimizer_config.learning_rate.constant.learning_rate = 2e-3;
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "cohort_experiment";
  register_experiment({.name = "small_digits", .description = "a dense network on drawn digits", .make = small_digits});

  ExperimentConfig experiment = find_experiment("small_digits").make();
  Config config([&](ConfigFields& fields) { experiment.describe(fields); });
  for (int i = 2; i < argc; ++i) config.apply_override(argv[i]);
  config.lock();
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const Logs result = run_experiment(experiment, config, strategy, {.model_dir = folder, .experiment = "small_digits"});
  if (argc == 1) std::filesystem::remove_all(folder);
  return result.empty() || result["accuracy"] > 0.6 ? 0 : 1;
}
