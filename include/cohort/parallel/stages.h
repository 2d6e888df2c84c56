// The places where the chunks of a model begin. A pipeline gives each of its stages some chunks; without one nothing
// happens there.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string_view>
#include <vector>

namespace cohort {

// Ends a chunk of a model and begins the next one: to be called in a module's forward(), with all that later layers
// need of earlier ones and that has gradients. Returns the values as the next chunk gets them; the same values outside
// of a pipeline. FailedPrecondition: the model has more chunks than the schedule. InvalidArgument, at the end of the
// microbatch's forward pass: a value with gradients went by another way.
torch::Tensor next_stage(const torch::Tensor& x);
std::vector<torch::Tensor> next_stage(const std::vector<torch::Tensor>& values);

// A place in a module's forward() where a chunk may begin: does as next_stage() if PipelineOptions::cut has the name,
// and returns x as it is otherwise. The models of the zoo that have blocks have such places before these: vision
// transformers "encoder_layer_1", ..., decoders "layers.1", ..., BERT "layer.1", ..., ResNets "layer1.0", "layer1.1",
// ..., EfficientNets "features.1.0", ..., U-Nets "down1", ..., "up1", ...; layouts::pipeline_cut() chooses among them.
torch::Tensor stage_place(const torch::Tensor& x, std::string_view name);
std::vector<torch::Tensor> stage_place(const std::vector<torch::Tensor>& values, std::string_view name);

// A module that calls next_stage(), for a torch::nn::Sequential: std::make_shared<StageMark>(). It has no parameters.
class StageMark : public torch::nn::Module {
 public:
  // Returns next_stage(x).
  torch::Tensor forward(const torch::Tensor& x) { return next_stage(x); }
};

}  // namespace cohort
