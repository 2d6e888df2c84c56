#pragma once

#include <string>

#include "train/model/step_functions.h"

namespace cohort {

// As StepFunctionsMaker has it.
StepFunctions make_steps_as_functions(const Strategy& strategy, std::string speaker, bool records);

}  // namespace cohort
