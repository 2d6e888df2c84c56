// The experiments and tasks for images.
#pragma once

#include <vector>

#include "models/experiment_group.h"

namespace cohort {

std::vector<ExperimentGroup> vision_experiments();
std::vector<TaskKind> vision_tasks();

}  // namespace cohort
