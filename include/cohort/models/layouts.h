// Ready-made layouts: which parameters of the transformers in cohort/models/zoo.h a mesh cuts.
//
//   const cohort::models::DecoderOptions options{.num_heads = 8};
//   const cohort::MeshStrategy strategy(mesh, {.layout = cohort::layouts::transformer(options)});
#pragma once

#include <string>

#include "cohort/mesh_strategy.h"
#include "cohort/models/zoo.h"

namespace cohort::layouts {

// Returns the layout of decoder(): attention by heads, and the hidden layers by columns and rows, as in Megatron-LM
// (Shoeybi et al., arXiv:1909.08053); adapters are cut with their matrices. Embeddings, norms and the head are whole.
// The size of the axis divides num_heads, num_kv_heads and intermediate_size; mirror() says what would fit where it
// does not.
LayoutMap transformer(const models::DecoderOptions& options, const std::string& axis = "model");
// Returns that of vision_transformer(); the size of the axis divides num_heads and mlp_dim.
LayoutMap transformer(const models::VisionTransformerOptions& options, const std::string& axis = "model");

}  // namespace cohort::layouts
