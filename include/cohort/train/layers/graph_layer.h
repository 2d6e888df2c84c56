// Layers that take several tensors or return several: they have a place in a functional model.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

// What goes between the layers of a functional model.
struct LayerValues {
  std::vector<torch::Tensor> tensors = {};  // [batch, ...] each
  std::vector<torch::Tensor> masks = {};    // one a tensor, [batch, steps], undefined for none; then an attention_mask
};

// The module of such a layer.
class GraphLayerModule : public LayerModule {
 public:
  // Computes all outputs, for a batch that may be empty. Masks are as those of LayerModule::forward_masked().
  virtual LayerValues forward_values(const LayerValues& inputs) = 0;

  torch::Tensor forward(const torch::Tensor& x) final { return forward_masked(x, {}); }
  torch::Tensor forward_masked(const torch::Tensor& x, const torch::Tensor& mask) final {
    return forward_values({.tensors = {x}, .masks = {mask}}).tensors.front();
  }
};

// A sort of layer with several inputs or outputs. In a Sequential it has one of each.
class GraphLayerKind : public LayerKind {
 public:
  // Returns the shapes of the outputs, without the batch. InvalidArgument, naming context.name: the inputs do not fit,
  // or are too many or too few. context.input is that of the first one.
  virtual std::vector<Shape> output_shapes(const BuildContext& context, const std::vector<Shape>& inputs) const = 0;
  // Makes the module, after output_shapes() has passed.
  virtual std::shared_ptr<GraphLayerModule> build_for(const BuildContext& context,
                                                      const std::vector<Shape>& inputs) const = 0;

  // Returns whether a call may have a mask of keys for each query besides those of its inputs.
  virtual bool takes_attention_mask() const { return false; }
  // Returns whether layers that are called after it do not get the masks of its inputs.
  virtual bool ends_masks() const { return false; }

  Shape output_shape(const BuildContext& context) const final;
  std::shared_ptr<LayerModule> build(const BuildContext& context) const final {
    return build_for(context, {context.input});
  }
};

}  // namespace cohort
