// The benchmarks' models: the MLP and the CNN of our layers, ResNet-50, small vision transformers, a decoder and a
// U-Net of our zoo. pytorch_step.py has those of images in Python.
#include "bench.h"

#include <stdexcept>

#include "cohort/train/layers.h"
#include "train/layers/sequential_module.h"

namespace cohort::bench {

namespace {

namespace nn = torch::nn;

constexpr int64_t kTransformerImage = 176;  // 121 patches and the class token
constexpr int64_t kTokens = 512;            // of an example of the decoder
constexpr int64_t kBytes = 256;             // the decoder's vocabulary
constexpr int64_t kUNetImage = 512;
constexpr int64_t kLargeImage = 224;
constexpr int64_t kLargeClasses = 1000;
constexpr int64_t kLargeTokens = 1024;
constexpr int64_t kLargeVocabulary = 16384;

// Our layers for an example of this shape, as fit() trains them.
class Layers final : public nn::Module {
 public:
  Layers(std::vector<Layer> layers, Shape shape) {
    name_layers(layers);
    layers_ =
        register_module("layers", std::make_shared<SequentialModule>(layers, BuildContext{.input = std::move(shape)}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layers_->forward(x); }

 private:
  std::shared_ptr<SequentialModule> layers_;
};

nn::Sequential of_layers(const std::vector<Layer>& layers, const Shape& shape) {
  return nn::Sequential(std::make_shared<Layers>(layers, shape));
}

// A decoder whose outputs have the vocabulary in dimension 1.
nn::Sequential of_decoder(const models::DecoderOptions& options) {
  return nn::Sequential(models::decoder(options),
                        nn::Functional([](const torch::Tensor& logits) { return logits.transpose(1, 2); }));
}

bool is_of_large_images(const std::string& name) {
  return name.starts_with("resnet50_224") || name == "vit_b";
}

}  // namespace

models::VisionTransformerOptions transformer(const std::string& name) {
  const bool block = name == "block";
  return {.image_size = kTransformerImage,
          .num_layers = block ? 1 : 4,
          .num_heads = block ? 8 : 4,
          .hidden_dim = block ? 512 : 256,
          .mlp_dim = block ? 2048 : 1024,
          .num_classes = kClasses};
}

torch::nn::Sequential make_model(const std::string& name) {
  if (name == "mlp") {
    return of_layers({Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(kClasses)}, {784});
  }
  if (name == "cnn") {
    return of_layers({Conv2D(32, 3, Activation::kRelu), Conv2D(64, 3, Activation::kRelu), MaxPooling2D(), Flatten(),
                      Dense(64, Activation::kRelu), Dense(kClasses)},
                     {1, 28, 28});
  }
  if (name == "resnet50") return nn::Sequential(models::resnet50({.num_classes = kClasses, .channels_last = true}));
  if (name == "vit_tiny") {
    return nn::Sequential(models::vision_transformer(
        {.image_size = 64, .num_heads = 3, .hidden_dim = 192, .mlp_dim = 768, .num_classes = kClasses}));
  }
  if (name == "transformer" || name == "block") return nn::Sequential(models::vision_transformer(transformer(name)));
  if (name == "unet") return nn::Sequential(models::unet({.num_classes = 2, .filters = 16}));
  if (name == "decoder") return of_decoder({});
  if (name == "resnet50_224" || name == "resnet50_224_last") {
    return nn::Sequential(models::resnet50({.channels_last = name == "resnet50_224_last"}));
  }
  if (name == "vit_b") return nn::Sequential(models::vision_transformer());
  if (name == "decoder_100m") {
    return of_decoder({.vocab_size = kLargeVocabulary,
                       .hidden_size = 768,
                       .intermediate_size = 2048,
                       .num_layers = 12,
                       .num_heads = 12});
  }
  throw std::invalid_argument("unknown model " + name);
}

torch::Tensor make_input(const std::string& name, int64_t size) {
  if (name == "mlp") return torch::randn({size, 784});
  if (name == "cnn") return torch::randn({size, 1, 28, 28});
  if (name == "unet") return torch::randn({size, 3, kUNetImage, kUNetImage});
  if (name == "decoder") return torch::randint(kBytes, {size, kTokens}, torch::kLong);
  if (name == "decoder_100m") return torch::randint(kLargeVocabulary, {size, kLargeTokens}, torch::kLong);
  if (is_of_large_images(name)) return torch::randn({size, 3, kLargeImage, kLargeImage});
  const int64_t edge = name == "transformer" || name == "block" ? kTransformerImage : 64;
  return torch::randn({size, 3, edge, edge});
}

torch::Tensor make_labels(const std::string& name, int64_t size) {
  if (name == "unet") return torch::randint(2, {size, kUNetImage, kUNetImage}, torch::kLong);
  if (name == "decoder") return torch::randint(kBytes, {size, kTokens}, torch::kLong);
  if (name == "decoder_100m") return torch::randint(kLargeVocabulary, {size, kLargeTokens}, torch::kLong);
  if (is_of_large_images(name)) return torch::randint(kLargeClasses, {size}, torch::kLong);
  return torch::randint(kClasses, {size}, torch::kLong);
}

int64_t batch_per_replica(const std::string& name) {
  if (name == "unet") return 1;
  if (name == "decoder") return 4;
  return name == "mlp" || name == "cnn" ? 64 : 8;
}

}  // namespace cohort::bench
