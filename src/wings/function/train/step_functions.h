#pragma once

#include <memory>
#include <string>

#include "train/model/step_functions.h"

namespace cohort {

// As StepFunctionsMaker has it.
std::unique_ptr<StepFunctions> make_steps_as_functions(const Strategy& strategy, std::string speaker, bool records);

}  // namespace cohort
