// The effects of an experiment's run, in parts that are cheap to look at, as texts that can be compared.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cohort/models/experiment.h"

namespace cohort::testing {

// An experiment with a configuration that is still open.
struct OpenExperiment {
  OpenExperiment(const std::string& name, const std::vector<std::string>& overrides);

  ExperimentConfig made;
  Config config;
};

// All that run_experiment() does before it asks whether everything was read.
void set_up(OpenExperiment& experiment);

// Each sets up what a run sets up, of the part, and tells what came of it.
// The numbers that the controller, the recovery, the summaries and the averages get, and the length of the training.
std::string plan_of(OpenExperiment& experiment);
// Some steps of the optimizer on a tiny module under the strategy, and its rate at many steps.
std::string optimizer_of(OpenExperiment& experiment);
// Returns what make_strategy() makes.
std::string strategy_of(OpenExperiment& experiment);
// The first batches of both datasets.
std::string data_of(OpenExperiment& experiment);
// Returns whether the datasets go on when the folder that they come from is gone, which is done here.
std::string memory_of(OpenExperiment& experiment);
// The model's parameters and how they lie in memory, and two steps of its training.
std::string step_of(OpenExperiment& experiment);
// Returns the number of operations that backward goes through from the model's output.
std::string graph_of(OpenExperiment& experiment);

// Returns valid values other than the defaults, by key, where the kind of a field does not give one.
const std::map<std::string, std::string>& other_values();

}  // namespace cohort::testing
