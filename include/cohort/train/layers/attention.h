// Attention, with masks and a cache of keys and values.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cohort/train/layers/graph_layer.h"

namespace cohort {

class AttentionState;

struct MultiHeadAttentionOptions {
  // The result for a query that sees no key. kZeros: zeros, and the output's bias. kKeras3: with dropout or with scores
  // the same, else the mean of all values. In a functional model kKeras3 also ends the masks of the inputs: layers that
  // are called after it do not get them, as in Keras 3.
  enum class Masks { kZeros, kKeras3 };

  int64_t num_heads = 0;                 // needed
  int64_t key_dim = 0;                   // size of a head's queries and keys; needed
  int64_t value_dim = 0;                 // size of a head's values; 0: key_dim
  int64_t output_dim = 0;                // size of the output; 0: the query's
  double dropout = 0.0;                  // the share of scores that are set to zero while training; in [0, 1)
  bool use_bias = true;                  // biases are added
  bool use_causal_mask = false;          // a step sees none behind it
  bool return_attention_scores = false;  // the scores are a second output, [batch, heads, queries, keys]
  Masks masks = Masks::kZeros;           // the result for a query that sees no key
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of the weights
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the biases
  Regularizer kernel_regularizer = {};                           // the weights' cost in the loss
  Regularizer bias_regularizer = {};                             // the biases' cost in the loss
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};

// Keys and values of the steps so far, for output that is made step by step. The cache is empty at first; each call
// appends its own.
struct AttentionCache {
  torch::Tensor key;    // [batch, heads, steps, key_dim]
  torch::Tensor value;  // [batch, heads, steps, value_dim]
};

// The inputs of attention. Masks are boolean, true for what is seen; undefined: everything.
struct AttentionInputs {
  torch::Tensor query;                // [batch, queries, size]
  torch::Tensor value;                // [batch, keys, size]
  torch::Tensor key = {};             // [batch, keys, size]; undefined: value
  torch::Tensor attention_mask = {};  // [batch or 1, queries, keys], with a cache all keys so far
  torch::Tensor query_mask = {};      // [batch, queries]
  torch::Tensor value_mask = {};      // [batch, keys]
  torch::Tensor key_mask = {};        // [batch, keys]
  bool use_causal_mask = false;       // query i sees keys up to i; with a cache counted from its end before the call
  AttentionCache* cache = nullptr;    // keys and values before these, and where these are kept; null: none
};
// The result of attention.
struct AttentionOutput {
  torch::Tensor output;  // [batch, queries, output_dim]
  // [batch, heads, queries, keys], before dropout. Undefined where the queries are divided among replicas
  // (MeshOptions::attention), of which none has them.
  torch::Tensor scores;
};

// The module of MultiHeadAttention, for modules of your own that attend to something else than their input. Its
// parameters are query.weight, key.weight, value.weight, output.weight ([outputs, inputs], LibTorch's) and the biases.
class Attention final : public GraphLayerModule {
 public:
  // The sizes of the last dimensions of the inputs.
  struct Sizes {
    int64_t query;  // queries
    int64_t value;  // values
    int64_t key;    // keys
  };
  // The library uses this: make_attention() makes attentions.
  Attention(const MultiHeadAttentionOptions& options, const Sizes& sizes, torch::ScalarType dtype, std::string name);
  ~Attention() override;

  // Computes attention. A query that sees no key gets zeros (and the output's bias), and so are its scores: as with
  // LibTorch from 2.5 on, and with Keras 3 where it gives the scores.
  AttentionOutput attend(const AttentionInputs& inputs);

  // Takes queries, values and keys as the layer does. A mask behind those of the inputs is the attention_mask.
  LayerValues forward_values(const LayerValues& inputs) override;
  torch::Tensor mask_of(const torch::Tensor& x, const torch::Tensor& mask) override;
  torch::Tensor penalty() const override;

 private:
  friend class Access;

  std::unique_ptr<AttentionState> state_;
};
// Makes the module for queries and values (and keys) of these sizes. `dtype` is that of the parameters.
std::shared_ptr<Attention> make_attention(const MultiHeadAttentionOptions& options, int64_t query_dim,
                                          int64_t value_dim, torch::ScalarType dtype = torch::kFloat);

// Makes attention of queries [batch, queries, size], values [batch, keys, size] and, as a third input, keys [batch,
// keys, size]; without them the values are the keys, and one input attends to itself. Returns [batch, queries,
// output_dim] (Vaswani et al., 2017). The masks of the inputs hide their steps. SymbolicCall::attention_mask hides keys
// from queries. InvalidArgument: an option or the shape of an input does not fit.
Layer MultiHeadAttention(const MultiHeadAttentionOptions& options);

}  // namespace cohort
