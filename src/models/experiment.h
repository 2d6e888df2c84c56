// Experiments: what `cohort train --experiment=NAME` can train. One row in the table of experiments.cpp each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/datasets.h"
#include "cohort/model.h"

namespace cohort {

struct Experiment {
  std::string_view name;
  std::string_view description;
  int64_t epochs;      // by default
  int64_t batch_size;  // global, by default
  // The model, not yet compiled; under the current strategy.
  Sequential (*model)();
  // For a run of so many updates.
  CompileOptions (*compile)(int64_t steps);
  // From a folder, or made by code when it is empty.
  datasets::TrainTest (*data)(const std::filesystem::path& folder, uint64_t seed);
};

const std::vector<Experiment>& experiments();

// NotFound lists the experiments that there are.
const Experiment& find_experiment(std::string_view name);

}  // namespace cohort
