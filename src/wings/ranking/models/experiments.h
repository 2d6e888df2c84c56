// The experiments and tasks of recommenders.
#pragma once

#include <vector>

#include "models/experiment_group.h"

namespace cohort {

std::vector<ExperimentGroup> ranking_experiments();
std::vector<TaskKind> ranking_tasks();

}  // namespace cohort
