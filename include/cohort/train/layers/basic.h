// Layers that have no family: dense, embedding, shapes, dropout.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct DenseOptions {
  int64_t units = 0;                                             // size of the output; needed
  Activation activation = Activation::kLinear;                   // applied to the output
  bool use_bias = true;                                          // a bias is added
  Initializer kernel_initializer = Initializer::kGlorotUniform;  // the initial values of the weight
  Initializer bias_initializer = Initializer::kZeros;            // the initial values of the bias
  Regularizer kernel_regularizer = {};                           // the weight's cost in the loss
  Regularizer bias_regularizer = {};                             // the bias' cost in the loss
  Constraint kernel_constraint = {};                             // the condition of the weight after each update
  Constraint bias_constraint = {};                               // the condition of the bias after each update
  std::string name = {};                                         // empty: the model gives one
  bool trainable = true;                                         // its parameters learn
};
// [batch, ..., inputs] -> [batch, ..., units]; parameters weight [units, inputs], bias [units].
Layer Dense(const DenseOptions& options);
Layer Dense(int64_t units, const Activation& activation = Activation::kLinear);

struct EmbeddingOptions {
  int64_t input_dim = 0;                                       // number of rows: indices are in [0, input_dim)
  int64_t output_dim = 0;                                      // size of a row
  Initializer embeddings_initializer = Initializer::kUniform;  // the initial values of the rows
  Regularizer embeddings_regularizer = {};                     // the rows' cost in the loss
  Constraint embeddings_constraint = {};                       // the condition of the rows after each update
  bool mask_zero = false;                                      // index 0 does not count: it makes a mask
  std::string name = {};                                       // empty: the model gives one
  bool trainable = true;                                       // its parameters learn
};
// Integers [batch, ...] -> [batch, ..., output_dim]; weight [input_dim, output_dim].
Layer Embedding(const EmbeddingOptions& options);
Layer Embedding(int64_t input_dim, int64_t output_dim);

// [batch, ...] -> [batch, product]; [batch] -> [batch, 1].
Layer Flatten();
// [batch, ...] -> [batch, target...]; one dimension may be -1.
Layer Reshape(Shape target_shape);

struct DropoutOptions {
  double rate =
      0.5;  // the share of elements that are set to zero while training, in [0, 1); the others grow by 1 / (1 - rate)
  std::string name = {};  // empty: the model gives one
};
// Draws from the replica's own generator (Replica::generator()), outside replicas from LibTorch's default one.
Layer Dropout(const DropoutOptions& options);
Layer Dropout(double rate);

}  // namespace cohort
