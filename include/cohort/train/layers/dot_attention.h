// Attention between two sequences without projections: of Luong and of Bahdanau. Layers of functional models.
#pragma once

#include <string>

#include "cohort/train/layers/graph_layer.h"

namespace cohort {

struct DotProductAttentionOptions {
  // kDot: the products of queries and keys. kConcat: the sum of tanh(query + key).
  enum class ScoreMode { kDot, kConcat };

  bool use_scale = false;                  // a factor of the scores that learns
  ScoreMode score_mode = ScoreMode::kDot;  // the way in which scores are made
  double dropout = 0.0;                    // the share of weights that are set to zero while training, in [0, 1)
  bool use_causal_mask = false;            // no query sees a later value
  bool return_attention_scores = false;    // the weights are a second output, [batch, queries, values]
  std::string name = {};                   // empty: the model gives one
  bool trainable = true;                   // its parameters learn
};
// Takes queries [batch, queries, size], values [batch, values, value_size] and, as a third input, keys [batch, values,
// size]; without them the values are the keys. Returns the mean of the values, weighted by the softmax of the scores:
// [batch, queries, value_size] (Luong et al., 2015). Masks: values that do not count have no weight, and the output of
// queries that do not count is zeros. Parameters scale and, of kConcat, concat_score_weight, numbers that start as 1.
// InvalidArgument: dropout is not in [0, 1), there are other than 2 or 3 inputs, or their shapes do not fit.
Layer DotProductAttention(const DotProductAttentionOptions& options = {});

struct AdditiveAttentionOptions {
  bool use_scale = true;                 // a factor for each element of tanh(query + key) that learns
  double dropout = 0.0;                  // the share of weights that are set to zero while training, in [0, 1)
  bool use_causal_mask = false;          // no query sees a later value
  bool return_attention_scores = false;  // the weights are a second output, [batch, queries, values]
  std::string name = {};                 // empty: the model gives one
  bool trainable = true;                 // its parameters learn
};
// The same with scores that are sums of scale * tanh(query + key) (Bahdanau et al., 2015); parameter scale [size].
// InvalidArgument: as DotProductAttention.
Layer AdditiveAttention(const AdditiveAttentionOptions& options = {});

}  // namespace cohort
