// A recommender, and its layout over a mesh.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cohort/models/named_module.h"
#include "cohort/parallel/axes.h"

namespace cohort::models {

struct DlrmOptions {
  int64_t num_dense_features = 13;             // numbers of an example
  std::vector<int64_t> vocab_sizes = {};       // values of each category
  int64_t embedding_dim = 16;                  // size of a category's vector
  std::vector<int64_t> bottom_mlp = {64, 16};  // units of the dense layers of the numbers; the last: embedding_dim
  std::vector<int64_t> top_mlp = {64, 32, 1};  // units of the dense layers of the products; the last: 1
};
// Makes a recommender: M. Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
// Systems" (2019, arXiv:1906.00091), with the names (emb_l, bot_l, top_l) and the arithmetic of facebookresearch/dlrm.
// The inputs, by name: dense_features, of floating point [examples, num_dense_features], and sparse_features, of an
// integer dtype [examples, categories], each below its vocabulary's size. The output: logits [examples]. With parameter
// servers only the rows of the tables that a step looks up travel (docs/parameter-servers.md).
std::shared_ptr<NamedModule> dlrm(const DlrmOptions& options);

}  // namespace cohort::models

namespace cohort::layouts {

struct RecommenderLayoutOptions {
  bool cuts_vocabulary = false;  // tables by their rows ("row-wise") instead of their columns ("column-wise")
  bool cuts_mlps = false;        // dense layers, too, by columns and rows in turn; an odd last one is whole
};
// Returns the layout of dlrm(): each replica has a part of every table, the vectors that it looks up come together in
// one message, and dense layers are whole, as in M. Naumov et al. (arXiv:1906.00091), section 4. The size of the axis
// divides embedding_dim, or with `cuts_vocabulary` each of vocab_sizes, and with `cuts_mlps` the outputs of every first
// layer of a pair.
LayoutMap recommender(const models::DlrmOptions& options, const std::string& axis = "model",
                      const RecommenderLayoutOptions& cuts = {});

}  // namespace cohort::layouts
