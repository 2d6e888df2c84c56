// Where a pipeline cuts models: the parts of layouts::pipeline_cut() (cohort/models/pipeline_cut.h).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort::layouts {

// Returns the places of so many chunks of about as many blocks, each of which has a place of its number behind
// `prefix`. InvalidArgument: there are not so many blocks.
std::vector<std::string> even_cut(const std::string& prefix, int64_t blocks, int chunks);

// Cuts a model whose blocks differ, by their costs: a wing adds it.
struct CutByCosts {
  std::vector<std::string> (*cut)(LayerModule& model, const torch::Tensor& x, int chunks) = nullptr;
};

}  // namespace cohort::layouts
