// The module that a list of layers becomes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/layer_form.h"
#include "train/layers/support.h"

namespace cohort {

// Gives names to the layers that have none ("dense", "dense_1", ...). A name twice: InvalidArgument.
void name_layers(std::vector<Layer>& layers);

class SequentialModule final : public torch::nn::Module, public LeavesParts, public LayerSequence {
 public:
  // The layers are named; `context` describes the input.
  SequentialModule(const std::vector<Layer>& layers, BuildContext context);

  // A mask of the input is boolean, [batch, steps]; undefined for none.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& mask = {});

  // Returns what the regularizers of each layer that has any add to the loss, scalars, and their sum; undefined for
  // nothing.
  std::vector<torch::Tensor> penalties() const;
  torch::Tensor penalty() const;
  // Returns the mask of the calling thread's last output, undefined for none, and forgets it.
  torch::Tensor take_output_mask();
  // Returns whether a layer makes a mask.
  bool makes_masks() const { return makes_masks_; }

  const std::vector<std::shared_ptr<LayerModule>>& layers() const override { return layers_; }

  // Has the last layer leave its output in parts, if it can.
  void leave_parts() override;

  // Has the later chunks of a pipeline begin with these layers, which ascend and do not have the first one.
  void set_cut(const std::vector<std::size_t>& first);

 private:
  // Returns a layer's input, in the chunk that begins with the layer.
  torch::Tensor entering(std::size_t layer, const torch::Tensor& x) const;
  torch::Tensor forward_with_masks(const torch::Tensor& input, const torch::Tensor& given);

  // A layer that does the next one's work, too.
  struct Pooled {
    ConvolutionModule* convolution = nullptr;
    PoolingModule* pooling = nullptr;
  };
  static Pooled pooled_before(LayerModule& layer, LayerModule& next);
  // Returns the output of the layer and the next one, which is what `layer` is then.
  torch::Tensor forward_pooled(std::size_t& layer, const torch::Tensor& x);

  std::vector<std::shared_ptr<LayerModule>> layers_;
  bool makes_masks_ = false;               // a layer does
  std::vector<std::string> begins_chunk_;  // one per layer: its name if it begins a chunk, else empty
  std::vector<Pooled> pooled_;  // one a layer, empty for those that do all of their own work and nothing else
};

// Returns the output shape of each layer, for an input of this shape.
std::vector<Shape> output_shapes(const std::vector<Layer>& layers, BuildContext context);

}  // namespace cohort
