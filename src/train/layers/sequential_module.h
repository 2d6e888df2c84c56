// The module that a list of layers becomes.
#pragma once

#include <memory>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/layer_chain.h"
#include "train/layers/layered_module.h"

namespace cohort {

// Gives names to the layers that have none ("dense", "dense_1", ...). A name twice: InvalidArgument.
void name_layers(std::vector<Layer>& layers);

class SequentialModule final : public torch::nn::Module, public LayeredModule {
 public:
  // The layers are named; `context` describes the input.
  SequentialModule(const std::vector<Layer>& layers, BuildContext context);

  // A mask of the input is boolean, [batch, steps]; undefined for none.
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& mask = {});
  // Returns the mask of the calling thread's last output, undefined for none, and forgets it.
  torch::Tensor take_output_mask();
  // Returns whether a layer makes a mask.
  bool makes_masks() const { return chain_.makes_masks(); }
  const std::vector<std::shared_ptr<LayerModule>>& layers() const { return chain_.layers(); }

  std::vector<torch::Tensor> penalties() const override;
  std::vector<torch::Tensor> take_output_masks() override { return {take_output_mask()}; }
  std::vector<PlacedLayer> places() const override;
  void visit(const std::vector<torch::Tensor>& inputs, const LayerVisitor& visitor) override;
  void begin_chunks(const std::vector<std::size_t>& places) override;
  std::vector<std::vector<std::shared_ptr<LayerModule>>> chains() const override { return {layers()}; }
  // Has the last layer leave its output in parts, if it can.
  void leave_parts() override;

 private:
  static LayerChain make_chain(const std::vector<Layer>& layers, BuildContext context);

  LayerChain chain_;
};

// Returns the output shape of each layer, for an input of this shape.
std::vector<Shape> output_shapes(const std::vector<Layer>& layers, BuildContext context);

}  // namespace cohort
