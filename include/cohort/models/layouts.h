// Ready-made layouts: which parameters of the transformers and the recommender in cohort/models/zoo.h a mesh cuts, and
// where a pipeline cuts their layers.
//
//   const cohort::models::DecoderOptions options{.num_heads = 8};
//   const cohort::MeshStrategy strategy(mesh, {.layout = cohort::layouts::transformer(options)});
#pragma once

#include <string>
#include <vector>

#include "cohort/models/zoo.h"
#include "cohort/parallel/axes.h"

namespace cohort::layouts {

// Returns the layout of decoder(): attention by heads, and the hidden layers by columns and rows, as in Megatron-LM
// (Shoeybi et al., arXiv:1909.08053); adapters are cut with their matrices. Norms are whole, and so are embeddings
// and the head unless `cuts_vocabulary`: then each replica has some words, and a cross-entropy of logits takes them in
// parts. The size of the axis divides num_heads, num_kv_heads and intermediate_size, and then vocab_size; mirror() says
// what would fit where it does not.
LayoutMap transformer(const models::DecoderOptions& options, const std::string& axis = "model",
                      bool cuts_vocabulary = false);
// Returns that of vision_transformer(); the size of the axis divides num_heads and mlp_dim.
LayoutMap transformer(const models::VisionTransformerOptions& options, const std::string& axis = "model");
// Returns that of bert(); the size of the axis divides num_heads and intermediate_size, and vocab_size if the words'
// embeddings and the logits of hidden tokens, which share them, are cut by words (`cuts_vocabulary`).
LayoutMap transformer(const models::BertOptions& options, const std::string& axis = "model",
                      bool cuts_vocabulary = false);

struct RecommenderLayoutOptions {
  bool cuts_vocabulary = false;  // tables by their rows ("row-wise") instead of their columns ("column-wise")
  bool cuts_mlps = false;        // dense layers, too, by columns and rows in turn; an odd last one is whole
};
// Returns that of dlrm(): each replica has a part of every table, the vectors that it looks up come together in one
// message, and dense layers are whole, as in M. Naumov et al. (arXiv:1906.00091), section 4. The size of the axis
// divides embedding_dim, or with `cuts_vocabulary` each of vocab_sizes, and with `cuts_mlps` the outputs of every first
// layer of a pair.
LayoutMap recommender(const models::DlrmOptions& options, const std::string& axis = "model",
                      const RecommenderLayoutOptions& cuts = {});

// Returns the places where a pipeline cuts a model into so many chunks of about as many blocks, for
// PipelineOptions::cut. The first chunk has the embedding, the last one the head. InvalidArgument: there are not so
// many blocks.
std::vector<std::string> pipeline_cut(const models::DecoderOptions& options, int chunks);
std::vector<std::string> pipeline_cut(const models::VisionTransformerOptions& options, int chunks);
std::vector<std::string> pipeline_cut(const models::BertOptions& options, int chunks);

// Returns those places of a model whose blocks differ (ResNets, EfficientNets, U-Nets, modules of one's own with
// stage_place()) that make the most expensive of so many chunks as cheap as they can. Costs are counted in one forward
// pass of x, in evaluation mode: the products of convolutions and matrices, and 40 for each number that these make,
// which stands for norms and activations. Counts are the same on every machine. x: such as the model takes, of few
// examples; of small images, because the counts of such models grow alike with the size. InvalidArgument: the model
// does not come through so many places. Not thread-safe: the model must not be used meanwhile.
std::vector<std::string> pipeline_cut(LayerModule& model, const torch::Tensor& x, int chunks);

}  // namespace cohort::layouts
