// The steps of optimizers that are captured as parts of graphs.
#pragma once

#include "cohort/replica.h"
#include "step/step_engine.h"

namespace cohort {

// Returns what makes them.
const StepEngine& steps_in_graphs();

// Makes what the steps of the replica's optimizers need in the device's memory. To be called by the replica's thread
// before it captures.
void prepare_steps_for_graphs(Replica& replica);

}  // namespace cohort
