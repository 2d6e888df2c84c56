// Where a pipeline cuts a model whose blocks differ.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

// Returns what layouts::pipeline_cut() does.
std::vector<std::string> cut_by_costs(LayerModule& model, const torch::Tensor& x, int chunks);

}  // namespace cohort
