// Ready-made layouts: which parameters of the transformers in cohort/models/zoo.h a mesh cuts, and where a pipeline
// cuts their layers.
//
//   const cohort::models::DecoderOptions options{.num_heads = 8};
//   const cohort::MeshStrategy strategy(mesh, {.layout = cohort::layouts::transformer(options)});
#pragma once

#include <string>
#include <vector>

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
// Returns that of bert(); the size of the axis divides num_heads and intermediate_size.
LayoutMap transformer(const models::BertOptions& options, const std::string& axis = "model");

// Returns the places where a pipeline cuts a model into so many chunks of about as many blocks, for
// PipelineOptions::cut. The first chunk has the embedding, the last one the head. InvalidArgument: there are not so
// many blocks.
std::vector<std::string> pipeline_cut(const models::DecoderOptions& options, int chunks);
std::vector<std::string> pipeline_cut(const models::VisionTransformerOptions& options, int chunks);

}  // namespace cohort::layouts
