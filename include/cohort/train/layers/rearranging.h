// Layers without parameters that put the elements of an example into another order, or scale them.
#pragma once

#include <cstdint>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

// Puts the dimensions into another order; they count from 1, the batch's is 0 (Keras' Permute).
Layer Permute(std::vector<int64_t> dims);

// x * scale + offset; integers become floating point.
Layer Rescaling(double scale, double offset = 0.0);

}  // namespace cohort
