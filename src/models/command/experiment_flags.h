// The flags that choose an experiment and change its configuration, of every command that takes experiments.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort {

// Returns the experiments with their descriptions, a line each.
std::string experiment_names();

struct ExperimentFlags {
  std::string name;
  // Those that were not given set nothing.
  std::optional<int64_t> batch_size;
  std::vector<std::string> config_files;
  std::vector<std::string> overrides;
  std::vector<std::string> gin_files;
  std::vector<std::string> gin_params;

  // Adds all of them but --experiment, which each command describes by itself.
  void add_to(CLI::App& app);
  // Returns whether any of those was given.
  bool any() const;
  // Sets the fields by the files, which every flag wins over.
  void apply_files(Config& config) const;
  // Sets the fields by the layers over all other flags, each over the one before. InvalidArgument: the batch size is
  // none.
  void apply_overrides(Config& config, Task& task) const;
};

}  // namespace cohort
