// SymbolicNode: a call of a layer on symbolic tensors. The nodes keep those before them, so that an output has the
// graph that it depends on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/train/functional.h"
#include "cohort/train/layers/graph_layer.h"

namespace cohort {

class ModelState;

namespace detail {

struct SymbolicNode {
  Layer layer;                              // an Input, a layer, or a model that is one
  const void* key;                          // equal for calls of the same layer
  std::vector<SymbolicTensor> inputs = {};  // the tensors, and behind them the masks that were given
  std::vector<Shape> shapes = {};           // of the outputs
  torch::ScalarType dtype = torch::kFloat;
  std::optional<bool> training = std::nullopt;  // the mode that the call keeps to
  std::vector<std::size_t> masked = {};         // the tensors that the given masks belong to; tensors(): attention_mask

  std::size_t tensors() const { return inputs.size() - masked.size(); }
};

}  // namespace detail

// Returns a layer's name, or what those without one are called.
std::string name_of(const Layer& layer);

// Returns the tensors' shapes.
std::vector<Shape> shapes_of(const std::vector<SymbolicTensor>& tensors);

// Notes a call, and returns its outputs.
std::vector<SymbolicTensor> note_call(detail::SymbolicNode node);

// The kind of an Input.
class InputKind final : public LayerKind {
 public:
  InputKind(Shape shape, torch::ScalarType dtype) : shape_(std::move(shape)), dtype_(dtype) {}
  std::string_view type() const override { return "InputLayer"; }
  std::string_view base_name() const override { return "input_layer"; }
  Shape output_shape(const BuildContext& /*context*/) const override { return shape_; }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override;

  const Shape& shape() const { return shape_; }
  torch::ScalarType dtype() const { return dtype_; }

 private:
  Shape shape_;
  torch::ScalarType dtype_;
};

// Base of the kinds of operations, which are no layers in a model's list, as in Keras.
class OperationKind : public GraphLayerKind {};

// The sides of arithmetic, as its LayerKind::options(): numbers, or nothing where the next input stands.
using OperationSides = std::vector<std::optional<double>>;

// The options of operations along a dimension, such as any(), as their LayerKind::options().
struct AxisOptions {
  int64_t axis = 0;
  bool keepdims = false;
};

// The options of SymbolicTensor::slice() and select(), as their LayerKind::options().
struct ItemOptions {
  int64_t dim = 0;                              // not negative
  std::optional<int64_t> index = std::nullopt;  // nothing: a slice, which has the fields below
  int64_t begin = 0;
  std::optional<int64_t> end = std::nullopt;
  int64_t step = 1;
};

// The kind of a model that is a layer of another one. Its modules are the model's copies.
class ModelKind final : public LayerKind {
 public:
  explicit ModelKind(std::shared_ptr<ModelState> model) : model_(std::move(model)) {}
  std::string_view type() const override;
  std::string_view base_name() const override;
  // The model has no one output shape: InvalidArgument, which says how it is called instead.
  Shape output_shape(const BuildContext& context) const override;
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override;

  ModelState& model() const { return *model_; }
  // Returns the shapes of the outputs for such inputs.
  std::vector<Shape> output_shapes(const std::vector<SymbolicTensor>& inputs) const;

 private:
  std::shared_ptr<ModelState> model_;
};

}  // namespace cohort
