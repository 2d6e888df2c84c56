// Tells what stages compute from what they send and receive.
#pragma once

#include "cohort/parallel/pipeline_schedule.h"

namespace cohort {

inline bool is_work(PipelineOp op) {
  return op == PipelineOp::kForward || op == PipelineOp::kBackward || op == PipelineOp::kWeight;
}

}  // namespace cohort
