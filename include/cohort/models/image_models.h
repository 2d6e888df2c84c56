// Models for images. Their parameters have torchvision's names and their arithmetic is torchvision's (0.14), so that
// its weights, saved as safetensors, load into them and theirs into it.
//
//   cohort::Model model([] { return cohort::models::resnet50({.num_classes = 10}); });
//   model.load_weights("resnet50.safetensors");
//
// They take images [examples, channels, height, width] of floating point, also no examples, and return logits
// [examples, num_classes], or with unet() [examples, num_classes, height, width]. Dropout and stochastic depth draw
// from the generator of the replica. New weights are drawn as torchvision draws them, from LibTorch's default
// generator. InvalidArgument: options or an input do not fit.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cohort/parallel/axes.h"
#include "cohort/train/layers/layer.h"

namespace cohort::models {

// Changes to the batch norms and the activation of a model. A value that is not set is the model's own, as in
// torchvision.
struct NormActivation {
  std::optional<double> epsilon = std::nullopt;         // the epsilon of the batch norms
  std::optional<double> momentum = std::nullopt;        // the share of the new statistics, as in LibTorch
  bool synchronized = false;                            // statistics of the global batch, as cohort::BatchNormalization
  std::optional<Activation> activation = std::nullopt;  // the activation
};

struct ResNetOptions {
  int64_t num_classes = 1000;  // outputs
  int64_t in_channels = 3;     // channels of an image
  // With true, the last batch norm of each block starts at zero, so that the blocks start as identities (Goyal et al.,
  // "Accurate, Large Minibatch SGD", 2017).
  bool zero_init_residual = false;
  bool channels_last = false;  // compute with the channels last in memory (kernels, too, on GPUs); rounds otherwise
  bool remat = false;          // compute blocks again in backward instead of keeping their activations (cohort::remat)
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// Makes a ResNet of 18 layers: K. He et al., "Deep Residual Learning for Image Recognition" (2015).
std::shared_ptr<LayerModule> resnet18(const ResNetOptions& options = {});
// Makes a ResNet of 34 layers.
std::shared_ptr<LayerModule> resnet34(const ResNetOptions& options = {});
// Makes a ResNet of 50 layers, in bottlenecks, whose 3 x 3 convolution has the stride ("v1.5").
std::shared_ptr<LayerModule> resnet50(const ResNetOptions& options = {});
// Makes a ResNet of 101 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet101(const ResNetOptions& options = {});
// Makes a ResNet of 152 layers, in bottlenecks.
std::shared_ptr<LayerModule> resnet152(const ResNetOptions& options = {});

// Makes the same paper's network for images of 32 x 32, of 6 * blocks + 2 layers (3 blocks: ResNet-20), with shortcuts
// without parameters.
std::shared_ptr<LayerModule> resnet_cifar(int64_t blocks, const ResNetOptions& options = {.num_classes = 10});

struct EfficientNetOptions {
  int64_t num_classes = 1000;           // outputs
  int64_t in_channels = 3;              // channels of an image
  double dropout = -1.0;                // rate of dropout before the classifier; negative: the variant's
  double stochastic_depth_prob = 0.2;   // rate at which the last block is dropped; that of earlier ones in proportion
  bool channels_last = false;           // as ResNetOptions::channels_last
  bool remat = false;                   // as ResNetOptions::remat
  double se_ratio = 0.25;               // width of squeeze and excitation, as a part of a block's input; 0: none
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// Makes an EfficientNet of variant 0 to 7: M. Tan and Q. Le, "EfficientNet" (2019).
std::shared_ptr<LayerModule> efficientnet(int variant, const EfficientNetOptions& options = {});
// Returns the height and width of the images that the variant was made for.
int64_t efficientnet_image_size(int variant);

struct VisionTransformerOptions {
  int64_t image_size = 224;            // height and width of an image, a multiple of patch_size
  int64_t patch_size = 16;             // height and width of a patch
  int64_t num_layers = 12;             // blocks of attention and dense layers
  int64_t num_heads = 12;              // heads of attention, a divisor of hidden_dim
  int64_t hidden_dim = 768;            // size of a token
  int64_t mlp_dim = 3072;              // size of the hidden layer of a block
  double dropout = 0.0;                // part of the activations that is set to zero while training
  double attention_dropout = 0.0;      // part of the weights of attention that is set to zero while training
  double stochastic_depth_prob = 0.0;  // rate at which the last block is dropped; that of earlier ones in proportion
  int64_t representation_size = 0;     // units of a dense layer with tanh before the classifier; 0: there is none
  // With true, all weights but the classifier's start from a normal distribution of deviation 0.02, cut off at two of
  // them (H. Touvron et al., "Training data-efficient image transformers", 2021), instead of torchvision's.
  bool normal_init = false;
  int64_t num_classes = 1000;  // outputs
  int64_t in_channels = 3;     // channels of an image
  bool remat = false;          // as ResNetOptions::remat
};
// Makes a vision transformer: A. Dosovitskiy et al., "An Image is Worth 16x16 Words" (2020).
std::shared_ptr<LayerModule> vision_transformer(const VisionTransformerOptions& options = {});

struct UNetOptions {
  int64_t num_classes = 2;              // outputs for each pixel
  int64_t in_channels = 3;              // channels of an image
  int64_t filters = 64;                 // channels of the first level; each level below has twice as many
  int64_t levels = 4;                   // number of times that height and width are halved, 1 to 16
  double dropout = 0.0;                 // part of the lowest level's output that is set to zero while training
  bool channels_last = false;           // as ResNetOptions::channels_last
  NormActivation norm_activation = {};  // changes to the batch norms and the activation
};
// Makes a U-Net, which gives logits for each pixel: O. Ronneberger et al., "U-Net: Convolutional Networks for
// Biomedical Image Segmentation" (2015), with padded convolutions and batch norms, under the names of Pytorch-UNet,
// whose weights
// ("unet_carvana" of torch.hub) load into it. Height and width may be odd; both are at least two to the power of
// levels.
std::shared_ptr<LayerModule> unet(const UNetOptions& options = {});

}  // namespace cohort::models

namespace cohort::layouts {

// Returns the layout of vision_transformer(), as that of decoder() (cohort/models/text_models.h); the size of the axis
// divides num_heads and mlp_dim.
LayoutMap transformer(const models::VisionTransformerOptions& options, const std::string& axis = "model");
// Returns the places where a pipeline cuts a model into so many chunks of about as many blocks (PipelineOptions::cut).
// InvalidArgument: there are not so many blocks.
std::vector<std::string> pipeline_cut(const models::VisionTransformerOptions& options, int chunks);

}  // namespace cohort::layouts
