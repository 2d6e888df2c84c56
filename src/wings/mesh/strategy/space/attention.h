// Attention between positions of which each replica of a line has some.
#pragma once

#include <torch/types.h>

#include "strategy/divided.h"

namespace cohort::space {

// Returns the result, divided as the query is, by the way that MeshOptions::attention says. In autocast it is computed
// in its half type. To be called in run(), by all replicas of the line. Unimplemented: the query is cut along another
// dimension than its steps, or a mask along another than these; weights are to be dropped in a ring. InvalidArgument:
// the heads do not divide by the size of the line (SequenceAttention::kUlysses).
torch::Tensor attend(const AttentionArgs& args);

}  // namespace cohort::space
