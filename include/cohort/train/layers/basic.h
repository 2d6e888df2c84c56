// Layers that have no family: dense, embedding, shapes, dropout, and those around functions and modules of the user's.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

// Makes a layer of a function without parameters. The output's shape is found by calling it on zeros.
Layer Lambda(std::function<torch::Tensor(const torch::Tensor&)> function, std::string name = {});

namespace detail {
struct ForeignModule {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;
};
Layer foreign_layer(std::function<ForeignModule(const Shape&)> build, std::string name);

// The code that module holders and shared pointers have in common.
template <typename M>
ForeignModule foreign_module(M module) {
  std::shared_ptr<torch::nn::Module> base;
  if constexpr (requires { module.ptr(); }) {
    base = module.ptr();
  } else {
    base = module;
  }
  return {std::move(base), [module](const torch::Tensor& x) mutable -> torch::Tensor { return module->forward(x); }};
}
}  // namespace detail

// Makes a layer of any torch::nn::Module. build(input shape) returns a module holder or a shared_ptr, a new one at each
// call; its forward takes a tensor. The output's shape is found by calling it on zeros.
template <typename Build>
Layer Wrap(Build build, std::string name = {}) {
  return detail::foreign_layer([build](const Shape& input) { return detail::foreign_module(build(input)); },
                               std::move(name));
}

}  // namespace cohort
