// The update of half-precision parameters in the host's memory, by the kernels of float32.
#pragma once

#include "optimizer/update_rule.h"
#include "step/update/tensors.h"

namespace cohort {

// Updates a run, or a whole parameter where the rule needs such; on all threads that the calling thread's operations
// may use. The gradient stays as it is.
void update_halves(const UpdateRule& rule, const UpdateRun& run, const DeviceScaling& scaling, StepContext context);

}  // namespace cohort
