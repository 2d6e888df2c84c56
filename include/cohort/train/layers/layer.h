// The base of all layers, which are values that describe a layer; a model builds a torch::nn::Module from each, once a
// replica.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cohort/train/given_options.h"
#include "cohort/train/layers/activation.h"
#include "cohort/train/layers/constraint.h"
#include "cohort/train/layers/initializer.h"

namespace cohort {

// Sizes of dimensions, without the batch; -1: not known yet.
using Shape = std::vector<int64_t>;

// Height and width; one number stands for both.
struct Size2 {
  // The same number for both.
  Size2(int64_t both) : height(both), width(both) {}  // NOLINT(google-explicit-constructor)
  // A number for each.
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
  bool operator==(const Size2&) const = default;

  int64_t height;  // rows
  int64_t width;   // columns
};

// kSame: TensorFlow's: the output has ceil(input / stride) elements, and an odd number of padded ones has the larger
// part at the end. kCausal: all of it at the beginning, so that no output sees a later input; Conv1D's only.
enum class Padding { kValid, kSame, kCausal };

// The part of an example that an element of a layer's output depends on: all of it, its channel (an index of
// dimension 1 of a batch), or the element in the same place.
enum class DependsOn { kAll, kChannel, kElement };

// The module that a layer becomes, with one input and one output.
class LayerModule : public torch::nn::Module {
 public:
  // Computes the output for a batch, which may be empty.
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
  // Computes the output where some steps of a sequence do not count: mask is boolean, [batch, steps], false for those
  // (Keras' masks). A layer that has no use for it leaves it out.
  virtual torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& /*mask*/) { return forward(x); }
  // Returns the mask of the output for an input with a mask (undefined: it has none, asked of layers that make one
  // only). Undefined, for none, unless a layer keeps the steps of its input.
  virtual torch::Tensor mask_of(const torch::Tensor& /*x*/, const torch::Tensor& /*mask*/) { return {}; }
  // Returns whether it makes a mask from its input (Masking, Embedding with mask_zero).
  virtual bool makes_mask() const { return false; }
  // Returns the part of the input that an element of the output depends on. Layers with parameters say kAll.
  virtual DependsOn depends_on() const { return DependsOn::kAll; }
  // Returns what its parameters add to the loss by their regularizers, a scalar; undefined for nothing.
  virtual torch::Tensor penalty() const { return {}; }
  // Called when the layer is frozen or thawed, besides setting requires_grad; batch norm stops learning statistics.
  virtual void set_frozen(bool /*frozen*/) {}
};

// The description of its place in the model that LayerKind::build() gets.
struct BuildContext {
  std::string name;                               // the name of the layer, for messages
  Shape input;                                    // the shape of the input, without the batch
  torch::ScalarType dtype = torch::kFloat;        // the dtype of parameters and of what flows between layers
  torch::ScalarType input_dtype = torch::kFloat;  // the dtype of what comes in: another one only where the data do
};

// One sort of layer with its options; immutable, thread-safe. Derive from it for a sort of your own.
class LayerKind : public GivenOptions {
 public:
  virtual ~LayerKind() = default;

  virtual std::string_view type() const = 0;       // "Dense"
  virtual std::string_view base_name() const = 0;  // "dense": what unnamed layers are called, with _1, _2, ... appended
  // Throws InvalidArgument, naming context.name, when the input does not fit.
  virtual Shape output_shape(const BuildContext& context) const = 0;
  // To be called only after output_shape() of the same context has passed.
  virtual std::shared_ptr<LayerModule> build(const BuildContext& context) const = 0;
};

struct CallOptions {
  // Whether layers behave as in training: dropout drops, batch norm takes the batch's statistics and learns them. A
  // layer or a model that is called so in a functional model keeps to it, whatever that model does.
  bool training = false;
};

namespace detail {
// The modules that a layer has become where it was called; copies of the layer share them.
struct LayerInstance {
  std::shared_ptr<void> built;
};
}  // namespace detail

// A value: a kind of layer, its name and whether it learns.
class Layer {
 public:
  // An activation as a layer of its own.
  Layer(const Activation& activation);  // NOLINT(google-explicit-constructor)
  explicit Layer(std::shared_ptr<const LayerKind> kind, std::string name = {}, bool trainable = true);

  // If it is empty the model gives it one. A name is unique in its model and has no dot (InvalidArgument).
  const std::string& name() const { return name_; }
  // Returns whether its parameters learn.
  bool trainable() const { return trainable_; }
  // Returns the sort of layer: "Dense".
  std::string_view type() const { return kind_->type(); }
  // Returns the sort of layer with its options.
  const LayerKind& kind() const { return *kind_; }
  // Returns the same for keeping, as a layer around this one does.
  const std::shared_ptr<const LayerKind>& shared_kind() const { return kind_; }

  // Calls the layer by itself on a tensor, or on symbolic ones (functional.h). Copies of it share the parameters then.
  template <typename Input>
  auto operator()(const Input& input) const {
    return call_layer(*this, input);
  }
  template <typename Input, typename Options = CallOptions>
  auto operator()(const Input& input, const Options& options) const {
    return call_layer(*this, input, options);
  }
  // Calls it on several.
  template <typename Input>
  auto operator()(std::initializer_list<Input> inputs) const {
    return call_layer(*this, std::vector<Input>(inputs));
  }
  // Returns what copies of the layer share.
  const std::shared_ptr<detail::LayerInstance>& instance() const { return instance_; }

  // Returns another layer of the same kind and options, with this name.
  Layer named(std::string name) const { return Layer(kind_, std::move(name), trainable_); }
  // Sets whether its parameters learn.
  void set_trainable(bool trainable) { trainable_ = trainable; }

 private:
  std::shared_ptr<const LayerKind> kind_;
  std::string name_;
  bool trainable_ = true;
  std::shared_ptr<detail::LayerInstance> instance_ = std::make_shared<detail::LayerInstance>();
};

}  // namespace cohort
