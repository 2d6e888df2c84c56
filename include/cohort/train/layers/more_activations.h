// Activations with numbers of their own.
#pragma once

#include <cstdint>

#include "cohort/train/layers/activation.h"
#include "cohort/train/layers/layer.h"

namespace cohort {

// x above 0, alpha * (exp(x / alpha) - 1) below. InvalidArgument: alpha is not positive.
Activation Celu(double alpha);
// 0 between -threshold and threshold, x outside. InvalidArgument: threshold is negative.
Activation HardShrink(double threshold);
// 0 between -threshold and threshold, and x nearer to 0 by threshold outside. InvalidArgument: threshold is negative.
Activation SoftShrink(double threshold);
// (x + sqrt(x^2 + b)) / 2. InvalidArgument: b is negative.
Activation Squareplus(double b);
// x above the threshold, otherwise the value.
Activation Threshold(double threshold, double value);

// Gated linear units (Dauphin et al., 2017): divides a dimension into halves, and multiplies the first one by the
// sigmoid of the second one. The batch is dimension 0, the last one -1. InvalidArgument: the input lacks the dimension,
// or its size is odd.
Layer GLU(int64_t axis = -1);

}  // namespace cohort
