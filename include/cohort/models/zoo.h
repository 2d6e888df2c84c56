// Image classifiers: modules whose parameters have torchvision's names and whose arithmetic is torchvision's (0.14), so
// that its weights, saved as safetensors, load into them and theirs into it.
//
//   cohort::Model model([] { return cohort::models::resnet50({.num_classes = 10}); });
//   model.load_weights("resnet50.safetensors");
//
// They take images [examples, channels, height, width] of floating point, also no examples, and give logits [examples,
// num_classes]. Dropout and stochastic depth draw from the replica's own generator. New weights are drawn as
// torchvision draws them, from LibTorch's default generator. InvalidArgument: options or an input that do not fit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "cohort/train/layers.h"

namespace cohort::models {

// Where a value is missing the model's own, which is torchvision's, stays.
struct NormActivation {
  std::optional<double> epsilon = std::nullopt;         // of the batch norms
  std::optional<double> momentum = std::nullopt;        // LibTorch's: the share of the new statistics
  bool synchronized = false;                            // statistics of the global batch, as cohort::BatchNormalization
  std::optional<Activation> activation = std::nullopt;  // in place of the model's own function
};

struct ResNetOptions {
  int64_t num_classes = 1000;  // outputs
  int64_t in_channels = 3;     // channels of an image
  // Whether the last batch norm of each block starts at zero, so that the blocks start as identities (Goyal et al.,
  // "Accurate, Large Minibatch SGD", 2017).
  bool zero_init_residual = false;
  bool channels_last = false;  // computes with the channels last in memory: faster on CPUs, and rounded otherwise
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// K. He et al., "Deep Residual Learning for Image Recognition" (2015). In the bottlenecks of ResNet-50 the 3 x 3
// convolution has the stride ("v1.5").
std::shared_ptr<LayerModule> resnet18(const ResNetOptions& options = {});
// 34 layers.
std::shared_ptr<LayerModule> resnet34(const ResNetOptions& options = {});
// 50 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet50(const ResNetOptions& options = {});
// 101 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet101(const ResNetOptions& options = {});
// 152 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet152(const ResNetOptions& options = {});

// The same paper's network for images of 32 x 32: 6 * blocks + 2 layers (3: ResNet-20), shortcuts without parameters.
std::shared_ptr<LayerModule> resnet_cifar(int64_t blocks, const ResNetOptions& options = {.num_classes = 10});

struct EfficientNetOptions {
  int64_t num_classes = 1000;           // outputs
  int64_t in_channels = 3;              // channels of an image
  double dropout = -1.0;                // before the classifier; negative: the variant's
  double stochastic_depth_prob = 0.2;   // of the last block; earlier ones in proportion
  bool channels_last = false;           // as ResNetOptions'
  double se_ratio = 0.25;               // width of squeeze and excitation, of a block's input; 0: without
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// M. Tan and Q. Le, "EfficientNet" (2019); variant 0 to 7.
std::shared_ptr<LayerModule> efficientnet(int variant, const EfficientNetOptions& options = {});
// Height and width that the variant was made for.
int64_t efficientnet_image_size(int variant);

struct VisionTransformerOptions {
  int64_t image_size = 224;            // a multiple of patch_size
  int64_t patch_size = 16;             // height and width of a patch
  int64_t num_layers = 12;             // blocks of attention and dense layers
  int64_t num_heads = 12;              // divides hidden_dim
  int64_t hidden_dim = 768;            // size of a token
  int64_t mlp_dim = 3072;              // size of the hidden layer of a block
  double dropout = 0.0;                // part of the activations that is set to zero while training
  double attention_dropout = 0.0;      // the same of the attention's weights
  double stochastic_depth_prob = 0.0;  // of the last block; earlier ones in proportion
  int64_t representation_size = 0;     // of a dense layer with tanh before the classifier; 0: none
  // Whether all weights but the classifier's start from a normal distribution of deviation 0.02, cut off at two of them
  // (H. Touvron et al., "Training data-efficient image transformers", 2021), instead of torchvision's.
  bool normal_init = false;
  int64_t num_classes = 1000;  // outputs
  int64_t in_channels = 3;     // channels of an image
};
// A. Dosovitskiy et al., "An Image is Worth 16x16 Words" (2020).
std::shared_ptr<LayerModule> vision_transformer(const VisionTransformerOptions& options = {});

}  // namespace cohort::models
