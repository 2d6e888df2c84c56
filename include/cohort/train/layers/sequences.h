// Layers for the steps of sequences.
#pragma once

#include "cohort/train/layers/layer.h"

namespace cohort {

// Masks steps of sequences [batch, steps, size] whose elements all are mask_value, and sets them to zero.
Layer Masking(double mask_value = 0.0);

// Applies a layer to each step of [batch, steps, ...], with the same parameters.
Layer TimeDistributed(const Layer& layer);

}  // namespace cohort
