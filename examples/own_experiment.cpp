// An experiment in one file: a program that has all flags of `cohort train`, and one more experiment.
// Usage: example_own_experiment --experiment=small_digits --model_dir=DIR [flags]
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
  register_experiment({.name = "small_digits", .description = "a dense network on drawn digits", .make = small_digits});
  return train_main(argc, argv);
}
