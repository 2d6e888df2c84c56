// Layers for the steps of sequences.
#pragma once

#include <cstdint>

#include "cohort/train/layers/layer.h"

namespace cohort {

// Masks steps of sequences [batch, steps, size] whose elements all are mask_value, and sets them to zero.
Layer Masking(double mask_value = 0.0);

// Applies a layer to each step of [batch, steps, ...], with the same parameters.
Layer TimeDistributed(const Layer& layer);

// Repeats each example as the n steps of a sequence: [batch, size] -> [batch, n, size]. InvalidArgument: n is not
// positive, or an example has other dimensions.
Layer RepeatVector(int64_t n);

}  // namespace cohort
