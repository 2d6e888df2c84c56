// Models as StableHLO, for inference.
#pragma once

#include "train/model/stablehlo_writer.h"

namespace cohort {

// Returns what writes models as StableHLO. The function "main" of the module takes the inputs of the model and returns
// the outputs, both in their order; the weights are constants. Nothing runs, and no plugin is needed.
StableHloWriter stablehlo_writer();

}  // namespace cohort
