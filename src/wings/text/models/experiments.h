// The experiments and tasks for text.
#pragma once

#include <vector>

#include "models/experiment_group.h"

namespace cohort {

std::vector<ExperimentGroup> text_experiments();
std::vector<TaskKind> text_tasks();

}  // namespace cohort
