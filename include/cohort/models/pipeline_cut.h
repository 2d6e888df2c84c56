// Places where a pipeline cuts any model.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort::layouts {

// Returns the places (PipelineOptions::cut) of a model whose blocks differ (ResNets, EfficientNets, U-Nets, modules of
// one's own with stage_place()) that make the most expensive of so many chunks as cheap as they can. Costs are counted
// in one forward pass of x, in evaluation mode: the products of convolutions and matrices, and 40 for each number that
// these make, which stands for norms and activations. Counts are the same on every machine. x: such as the model takes,
// of few examples; of small images, because the counts of such models grow alike with the size. InvalidArgument: the
// model does not come through so many places. Not thread-safe: the model must not be used meanwhile.
std::vector<std::string> pipeline_cut(LayerModule& model, const torch::Tensor& x, int chunks);

}  // namespace cohort::layouts
