// The module that a list of layers becomes.
#pragma once

#include <memory>
#include <vector>

#include "cohort/train/layers.h"
#include "train/layers/support.h"

namespace cohort {

// Gives names to the layers that have none ("dense", "dense_1", ...). A name twice: InvalidArgument.
void name_layers(std::vector<Layer>& layers);

class SequentialModule final : public torch::nn::Module {
 public:
  // The layers are named; `context` describes the input.
  SequentialModule(const std::vector<Layer>& layers, BuildContext context);

  torch::Tensor forward(const torch::Tensor& input);

  const std::vector<std::shared_ptr<LayerModule>>& layers() const { return layers_; }

 private:
  std::vector<std::shared_ptr<LayerModule>> layers_;
  std::vector<ConvolutionModule*> rectified_later_;  // one a layer, null for those that do all of their own work
};

// Of each layer, for an input of this shape.
std::vector<Shape> output_shapes(const std::vector<Layer>& layers, BuildContext context);

}  // namespace cohort
