// The steps of optimizers that are parts of functions which are recorded.
#pragma once

#include "step/step_engine.h"

namespace cohort {

// Returns what makes them.
const StepEngine& steps_in_recordings();

}  // namespace cohort
