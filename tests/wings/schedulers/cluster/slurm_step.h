// A step of Slurm, as its variables describe it to a task.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "cohort/cluster/scheduler_resolvers.h"

namespace cohort::testing {

using Variables = std::map<std::string, std::string>;

inline Variables slurm_step(const std::string& rank) {
  return {{"SLURM_PROCID", rank},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_STEP_NODELIST", "n[08-09],m1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};
}

inline SlurmResolver slurm(Variables variables, SlurmOptions options = {}) {
  options.variables = environment_of(std::move(variables));
  return SlurmResolver(options);
}

}  // namespace cohort::testing
