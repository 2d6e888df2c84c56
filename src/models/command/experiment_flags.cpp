#include "models/command/experiment_flags.h"

#include "base/fail.h"

namespace cohort {

std::string experiment_names() {
  std::string names;
  for (const Experiment& experiment : experiments()) {
    names += c10::str("\n  ", experiment.name, ": ", experiment.description);
  }
  return names;
}

void ExperimentFlags::add_to(CLI::App& app) {
  const auto several = CLI::MultiOptionPolicy::TakeAll;
  app.add_option("--batch_size", batch_size, "global batch of training and evaluation");
  app.add_option("--config_file", config_files, "file of YAML or JSON; may be given several times, later ones win")
      ->expected(1)
      ->multi_option_policy(several);
  app.add_option("--params_override", overrides, "a.b=1,c=[1,2], YAML text, or a file; wins over the flags above")
      ->expected(1)
      ->delimiter('\0')
      ->multi_option_policy(several);
  app.add_option("--gin_file", gin_files, "file of bindings in gin's format; wins over all others")
      ->expected(1)
      ->multi_option_policy(several);
  app.add_option("--gin_param,--gin_params", gin_params, "one binding in gin's format: trainer.train_steps=100")
      ->expected(1)
      ->multi_option_policy(several);
}

bool ExperimentFlags::any() const {
  return batch_size || !config_files.empty() || !overrides.empty() || !gin_files.empty() || !gin_params.empty();
}

void ExperimentFlags::apply_files(Config& config) const {
  for (const std::string& file : config_files) config.apply_file(file);
}

void ExperimentFlags::apply_overrides(Config& config, Task& task) const {
  if (batch_size && *batch_size < 1) {
    fail<InvalidArgument>("[train] --batch_size is ", *batch_size, ", wanted 1 or more");
  }
  if (batch_size) task.set_batch(config, *batch_size, "--batch_size");
  for (const std::string& text : overrides) config.apply_override(text);
  for (const std::string& file : gin_files) config.apply_gin_file(file);
  for (const std::string& text : gin_params) config.apply_gin(text);
  task.complete(config);
}

}  // namespace cohort
