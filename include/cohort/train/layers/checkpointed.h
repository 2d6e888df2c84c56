// Layers that compute their activations again in backward (cohort/train/layers/remat.h).
//
//   cohort::Sequential model{Checkpointed({Dense(4096, Activation::kGelu), Dense(1024)}), Dense(10)};
#pragma once

#include <vector>

#include "cohort/train/layers/layer.h"
#include "cohort/train/layers/remat.h"

namespace cohort {

// A layer that computes its activations again in backward. Its parameters keep their names.
Layer Checkpointed(const Layer& layer, const CheckpointedOptions& options = {});
// Layers one after another, as one block: their names stand behind the block's ("checkpointed.dense.weight").
// InvalidArgument: there are none, or two have one name.
Layer Checkpointed(std::vector<Layer> layers, const CheckpointedOptions& options = {});

}  // namespace cohort
