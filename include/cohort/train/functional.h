// Functional: models that are graphs of layers (Keras' functional API).
//
//   SymbolicTensor image = Input({784}, {.name = "image"}), meta = Input({4}, {.name = "meta"});
//   SymbolicTensor x = Concatenate()({Dense(64, Activation::kRelu)(image), meta});
//   Functional model({image, meta}, {{"class", Dense(10)(x)}, {"score", Dense(1)(x)}});
//
// A layer that is called on symbolic tensors notes the call. A layer that is called several times, and copies of it,
// have the same parameters in all calls, and in all models of one strategy. Models are called in the same way: they are
// layers of the other model then, and share their parameters with it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "cohort/train/model.h"

namespace cohort {

namespace detail {
struct SymbolicNode;
}

// An output of a layer before there are numbers: a value, which keeps the layers that it depends on.
class SymbolicTensor {
 public:
  SymbolicTensor(std::shared_ptr<const detail::SymbolicNode> node, std::size_t output)
      : node_(std::move(node)), output_(output) {}

  // Returns the shape of an example, without the batch; -1: not known yet.
  const Shape& shape() const;
  // Returns the dtype of an input; of all others the default one of floating point.
  torch::ScalarType dtype() const;

  // Returns the elements from begin to end, which is left out, of a dimension; the batch's is 0, and not allowed.
  // Negative numbers count from the end. InvalidArgument: there are no such elements.
  SymbolicTensor slice(int64_t dim, int64_t begin, std::optional<int64_t> end = std::nullopt, int64_t step = 1) const;
  // Returns one index of a dimension, which goes.
  SymbolicTensor select(int64_t dim, int64_t index) const;

  // Returns the call that made it, for those who build models.
  const std::shared_ptr<const detail::SymbolicNode>& node() const { return node_; }
  // Returns its number among the outputs of the call.
  std::size_t output() const { return output_; }

 private:
  std::shared_ptr<const detail::SymbolicNode> node_;
  std::size_t output_;
};

struct InputTensorOptions {
  torch::ScalarType dtype = torch::kFloat;  // kFloat stands for the model's dtype
  std::string name = {};                    // the input's name in the examples; empty: the model gives one
};
// Returns an input of a model: examples of this shape, without the batch; -1: any size.
SymbolicTensor Input(const Shape& shape, const InputTensorOptions& options = {});

// A side of an operator: a symbolic tensor or a number.
class SymbolicOperand {
 public:
  // Takes a tensor.
  SymbolicOperand(const SymbolicTensor& tensor) : tensor_(tensor) {}  // NOLINT(google-explicit-constructor)
  // Takes a number.
  SymbolicOperand(double number) : number_(number) {}  // NOLINT(google-explicit-constructor)

  // Returns the tensor; nothing: it is a number.
  const std::optional<SymbolicTensor>& tensor() const { return tensor_; }
  // Returns the number.
  double number() const { return number_; }

 private:
  std::optional<SymbolicTensor> tensor_;
  double number_ = 0.0;
};

// Adds tensors whose shapes fit as LibTorch's do, or a number. InvalidArgument: they do not fit.
SymbolicTensor operator+(const SymbolicOperand& a, const SymbolicOperand& b);
// Subtracts.
SymbolicTensor operator-(const SymbolicOperand& a, const SymbolicOperand& b);
// Multiplies.
SymbolicTensor operator*(const SymbolicOperand& a, const SymbolicOperand& b);
// Divides.
SymbolicTensor operator/(const SymbolicOperand& a, const SymbolicOperand& b);
// Returns the negative numbers.
SymbolicTensor operator-(const SymbolicTensor& a);
// Returns the larger of each two elements. InvalidArgument, here and in the next two: shapes do not fit.
SymbolicTensor maximum(const SymbolicOperand& a, const SymbolicOperand& b);
// Returns the smaller of each two elements.
SymbolicTensor minimum(const SymbolicOperand& a, const SymbolicOperand& b);
// Returns a to the power of b.
SymbolicTensor pow(const SymbolicOperand& a, const SymbolicOperand& b);
// Returns the absolute values.
SymbolicTensor abs(const SymbolicTensor& x);
// Returns e to the power of each element.
SymbolicTensor exp(const SymbolicTensor& x);
// Returns the natural logarithms.
SymbolicTensor log(const SymbolicTensor& x);
// Returns the square roots.
SymbolicTensor sqrt(const SymbolicTensor& x);
// Returns the squares.
SymbolicTensor square(const SymbolicTensor& x);
// Returns the hyperbolic tangents.
SymbolicTensor tanh(const SymbolicTensor& x);
// Returns the elements that are above 0, and 0 for the others.
SymbolicTensor relu(const SymbolicTensor& x);
// Returns 1 / (1 + e^-x).
SymbolicTensor sigmoid(const SymbolicTensor& x);
// Returns x * sigmoid(x).
SymbolicTensor silu(const SymbolicTensor& x);

// Returns the sums along a dimension; the batch's is 0, and not allowed. The dimension goes, or has size 1 with
// keepdims. InvalidArgument, here and in the next three: there is no such dimension.
SymbolicTensor sum(const SymbolicTensor& x, int64_t axis, bool keepdims = false);
// Returns the means along a dimension. Masks have no influence.
SymbolicTensor mean(const SymbolicTensor& x, int64_t axis, bool keepdims = false);
// Returns the largest elements along a dimension.
SymbolicTensor max(const SymbolicTensor& x, int64_t axis, bool keepdims = false);
// Returns the smallest elements along a dimension.
SymbolicTensor min(const SymbolicTensor& x, int64_t axis, bool keepdims = false);

// Returns whether elements differ: a mask, boolean. Shapes are as operator+'s.
SymbolicTensor not_equal(const SymbolicOperand& a, const SymbolicOperand& b);
// Returns whether any element along a dimension is true, or not zero; the batch's is 0, and not allowed. The dimension
// goes, or has size 1. InvalidArgument: there is no such dimension.
SymbolicTensor any(const SymbolicTensor& x, int64_t axis, bool keepdims = false);
// Returns where a or b is true.
SymbolicTensor logical_or(const SymbolicTensor& a, const SymbolicTensor& b);
// Returns where a and b are true.
SymbolicTensor logical_and(const SymbolicTensor& a, const SymbolicTensor& b);

// The arguments of a call beside its inputs: layer(x, SymbolicCall{.masks = {not_equal(ids, 0)}}).
struct SymbolicCall {
  std::optional<bool> training = std::nullopt;  // the mode that the call keeps to; nothing: the model's
  // The masks of the inputs in their order, boolean, [batch, steps], instead of those of the layers before. Nothing:
  // the input has the mask that comes with it.
  std::vector<std::optional<SymbolicTensor>> masks = {};
  // The keys that each query sees, boolean, [batch, queries, keys]: of MultiHeadAttention.
  std::optional<SymbolicTensor> attention_mask = std::nullopt;
};

// Behind Layer::operator(). InvalidArgument: the layer takes other inputs, or has several outputs, or there are more
// masks than inputs.
SymbolicTensor call_layer(const Layer& layer, const SymbolicTensor& x);
SymbolicTensor call_layer(const Layer& layer, const SymbolicTensor& x, const CallOptions& options);
SymbolicTensor call_layer(const Layer& layer, const std::vector<SymbolicTensor>& inputs);
SymbolicTensor call_layer(const Layer& layer, const std::vector<SymbolicTensor>& inputs, const CallOptions& options);
SymbolicTensor call_layer(const Layer& layer, const SymbolicTensor& x, const SymbolicCall& call);
SymbolicTensor call_layer(const Layer& layer, const std::vector<SymbolicTensor>& inputs, const SymbolicCall& call);
// Calls a layer by itself, under the current strategy, in a replica and outside of run(): its parameters are made by
// the first call, and by all replicas together.
torch::Tensor call_layer(const Layer& layer, const torch::Tensor& x);
torch::Tensor call_layer(const Layer& layer, const torch::Tensor& x, const CallOptions& options);
// Returns the model that a layer which was called by itself is, with its parameters: for Strategy::optimizer(),
// trainable_variables(), weights(). FailedPrecondition: it was not called.
Model as_model(const Layer& layer);

// Behind Model::operator(). A Sequential that is not built yet is built by it. InvalidArgument: the model takes other
// inputs or, with one tensor as its result, has several outputs.
SymbolicTensor call_model(const Model& model, const SymbolicTensor& x);
SymbolicTensor call_model(const Model& model, const SymbolicTensor& x, const CallOptions& options);
// Calls a layer or a model and returns all outputs.
std::vector<SymbolicTensor> call_for_all(const Layer& layer, const std::vector<SymbolicTensor>& inputs,
                                         std::optional<CallOptions> options = std::nullopt);
std::vector<SymbolicTensor> call_for_all(const Model& model, const std::vector<SymbolicTensor>& inputs,
                                         std::optional<CallOptions> options = std::nullopt);
std::vector<SymbolicTensor> call_for_all(const Layer& layer, const std::vector<SymbolicTensor>& inputs,
                                         const SymbolicCall& call);
std::vector<SymbolicTensor> call_for_all(const Model& model, const std::vector<SymbolicTensor>& inputs,
                                         const SymbolicCall& call);

// The outputs of a functional model, with or without names.
class SymbolicOutputs {
 public:
  // An only output.
  SymbolicOutputs(const SymbolicTensor& one) : list_{{"", one}} {}  // NOLINT(google-explicit-constructor)
  // Outputs with the names of their layers.
  SymbolicOutputs(const std::vector<SymbolicTensor>& list);  // NOLINT(google-explicit-constructor)
  // The same.
  SymbolicOutputs(std::initializer_list<SymbolicTensor> list) : SymbolicOutputs(std::vector<SymbolicTensor>(list)) {}
  // Outputs with names.
  SymbolicOutputs(std::initializer_list<std::pair<std::string, SymbolicTensor>> list) : list_(list) {}

  // The same.
  explicit SymbolicOutputs(std::vector<std::pair<std::string, SymbolicTensor>> list) : list_(std::move(list)) {}

  // Returns them in their order; the names may be empty.
  const std::vector<std::pair<std::string, SymbolicTensor>>& list() const { return list_; }

 private:
  std::vector<std::pair<std::string, SymbolicTensor>> list_;
};

struct FunctionalOptions {
  std::string name = "functional";          // the model's name
  torch::ScalarType dtype = torch::kFloat;  // the dtype of the parameters, to which floating-point input is converted
};

// A model of the layers between its inputs and its outputs. It is built at once, under the current strategy. Inputs of
// examples go by their names; an only input is the examples' x, too. Several outputs have the names that they are given
// here, else those of their layers. InvalidArgument: an input is no Input(), an output does not depend on the inputs
// alone, names are not unique. FailedPrecondition: a layer or a model in it was built under another strategy, or under
// one whose replicas have parts of the parameters (stage 3, layouts, stages of workers).
class Functional : public Model {
 public:
  // A model with one input.
  Functional(const SymbolicTensor& input, const SymbolicOutputs& outputs, const FunctionalOptions& options = {});
  // A model with several inputs.
  Functional(const std::vector<SymbolicTensor>& inputs, const SymbolicOutputs& outputs,
             const FunctionalOptions& options = {});

  // Returns the inputs, of which other models can be made.
  const std::vector<SymbolicTensor>& inputs() const;
  // Returns the outputs.
  std::vector<SymbolicTensor> outputs() const;
  // Returns the output of a layer at its first call (Keras' get_layer(name).output). NotFound lists the layers.
  SymbolicTensor output_of(std::string_view layer) const;
};

}  // namespace cohort
