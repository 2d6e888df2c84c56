// The layer that cuts a pipeline.
#pragma once

#include "cohort/train/layers/layer.h"

namespace cohort {

// Ends a chunk of a pipeline (PipelineStrategy): the layers behind it belong to the next one. Under other strategies it
// returns its input.
Layer Stage();

}  // namespace cohort
