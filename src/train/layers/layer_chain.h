// LayerChain: layers that are called one after the other, each with what the one before gave, and with its mask.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/support.h"

namespace cohort {

class LayerChain {
 public:
  // Makes a chain of these layers, which have names in their model.
  LayerChain(std::vector<std::string> names, std::vector<std::shared_ptr<LayerModule>> layers);

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::shared_ptr<LayerModule>>& layers() const { return layers_; }
  // Returns whether a layer makes a mask.
  bool makes_masks() const { return makes_masks_; }
  // Has a chunk of a pipeline begin with the layer, which is not the first one.
  void begin_chunk(std::size_t layer);

  // Calls the layers, none of which makes a mask.
  torch::Tensor forward(const torch::Tensor& input) const;
  // The same with the input's mask, undefined for none, which becomes that of the output.
  torch::Tensor forward(const torch::Tensor& input, torch::Tensor& mask) const;

 private:
  // A layer that does the next one's work, too.
  struct Pooled {
    ConvolutionModule* convolution = nullptr;
    PoolingModule* pooling = nullptr;
  };
  static Pooled pooled_before(LayerModule& layer, LayerModule& next);
  // Returns the output of the layer and the next one, which is what `layer` is then.
  torch::Tensor forward_pooled(std::size_t& layer, const torch::Tensor& x) const;
  // Returns a layer's input, in the chunk that begins with the layer.
  torch::Tensor entering(std::size_t layer, const torch::Tensor& x) const;

  std::vector<std::string> names_;
  std::vector<std::shared_ptr<LayerModule>> layers_;
  bool makes_masks_ = false;
  std::vector<bool> begins_chunk_;  // one a layer
  std::vector<Pooled> pooled_;      // one a layer, empty for those that do all of their own work and nothing else
};

}  // namespace cohort
