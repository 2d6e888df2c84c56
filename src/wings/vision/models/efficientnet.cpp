// EfficientNets with torchvision's names and arithmetic: one table of stages, scaled in width and depth by the variant.
#include <ATen/Functions.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <cmath>

#include "base/fail.h"
#include "cohort/models/image_models.h"
#include "device/layout.h"
#include "models/zoo/parts.h"
#include "wings/vision/models/blocks.h"

namespace cohort::models {

namespace {

struct Variant {
  double width;
  double depth;
  double dropout;
  int64_t image_size;
  NormShape norm;
};

constexpr std::array<Variant, 8> kVariants = {{{1.0, 1.0, 0.2, 224, {1e-5, 0.1}},
                                               {1.0, 1.1, 0.2, 240, {1e-5, 0.1}},
                                               {1.1, 1.2, 0.3, 288, {1e-5, 0.1}},
                                               {1.2, 1.4, 0.3, 300, {1e-5, 0.1}},
                                               {1.4, 1.8, 0.4, 380, {1e-5, 0.1}},
                                               {1.6, 2.2, 0.4, 456, {1e-3, 0.01}},
                                               {1.8, 2.6, 0.5, 528, {1e-3, 0.01}},
                                               {2.0, 3.1, 0.5, 600, {1e-3, 0.01}}}};

// A stage of blocks, for width and depth 1.
struct Stage {
  int64_t expand_ratio;
  int64_t kernel;
  int64_t stride;  // the stride of the first block
  int64_t in;
  int64_t out;
  int64_t blocks;
};

constexpr std::array<Stage, 7> kStages = {{{1, 3, 1, 32, 16, 1},
                                           {6, 3, 2, 16, 24, 2},
                                           {6, 5, 2, 24, 40, 2},
                                           {6, 3, 2, 40, 80, 3},
                                           {6, 5, 1, 80, 112, 3},
                                           {6, 5, 2, 112, 192, 4},
                                           {6, 3, 1, 192, 320, 1}}};

const Variant& variant_of(int number) {
  if (number >= 0 && number < static_cast<int>(kVariants.size())) return kVariants[static_cast<std::size_t>(number)];
  fail<InvalidArgument>("[models] efficientnet: variant is ", number, ", wanted 0 to 7");
}

// Returns the nearest multiple of 8 that is not less than nine tenths of the channels.
int64_t make_divisible(double channels) {
  const int64_t rounded = std::max<int64_t>(8, static_cast<int64_t>(channels + 4.0) / 8 * 8);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + 8 : rounded;
}

// Scales the channels by what all pixels say of them: J. Hu et al., "Squeeze-and-Excitation Networks" (2018).
class SqueezeExcitation final : public LayerModule {
 public:
  SqueezeExcitation(int64_t channels, int64_t squeezed, Activation activation)
      : activation_(std::move(activation)),
        fc1_(register_module("fc1", one_by_one(channels, squeezed))),
        fc2_(register_module("fc2", one_by_one(squeezed, channels))) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    const torch::Tensor squeezed = x.mean({2, 3}, /*keepdim=*/true);
    return x * at::sigmoid(fc2_->forward(activation_(fc1_->forward(squeezed))));
  }

 private:
  static torch::nn::Conv2d one_by_one(int64_t in, int64_t out) {
    torch::nn::Conv2d made(torch::nn::Conv2dOptions(in, out, 1));
    torch::nn::init::kaiming_normal_(made->weight, 0, torch::kFanOut, torch::kReLU);
    torch::nn::init::zeros_(made->bias);
    return made;
  }

  Activation activation_;
  torch::nn::Conv2d fc1_;
  torch::nn::Conv2d fc2_;
};

// The properties that all blocks share.
struct MobileStyle {
  NormShape norm;
  Activation activation;
  double se_ratio;
};

// M. Sandler et al., "MobileNetV2" (2018), with squeeze and excitation.
class InvertedResidual final : public LayerModule {
 public:
  InvertedResidual(const Stage& stage, const MobileStyle& style, double drop_probability)
      : shortcut_(stage.stride == 1 && stage.in == stage.out), drop_(drop_probability) {
    const int64_t expanded = make_divisible(static_cast<double>(stage.in * stage.expand_ratio));
    const auto block = std::make_shared<Chain>();
    if (expanded != stage.in) {
      block->push_back(
          std::make_shared<ConvNorm>(ConvShape{.in = stage.in, .out = expanded}, style.norm, style.activation));
    }
    const ConvShape depthwise{
        .in = expanded, .out = expanded, .kernel = stage.kernel, .stride = stage.stride, .groups = expanded};
    block->push_back(std::make_shared<ConvNorm>(depthwise, style.norm, style.activation));
    if (style.se_ratio > 0.0) {
      const auto squeezed = static_cast<int64_t>(static_cast<double>(stage.in) * style.se_ratio);
      block->push_back(std::make_shared<SqueezeExcitation>(expanded, std::max<int64_t>(1, squeezed), style.activation));
    }
    block->push_back(std::make_shared<ConvNorm>(ConvShape{.in = expanded, .out = stage.out}, style.norm));
    block_ = register_module("block", block);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    torch::Tensor y = block_->forward(x);
    if (!shortcut_) return y;
    return is_training() && drop_ > 0.0 ? drop(y, drop_, {y.size(0), 1, 1, 1}) + x : y + x;
  }

 private:
  bool shortcut_;
  double drop_;
  std::shared_ptr<Chain> block_;
};

class EfficientNet final : public LayerModule, public ChannelsLast {
 public:
  EfficientNet(const Variant& variant, const EfficientNetOptions& options)
      : channels_(options.in_channels),
        channels_last_(options.channels_last),
        dropout_(options.dropout < 0.0 ? variant.dropout : options.dropout) {
    const auto wide = [&](int64_t channels) { return make_divisible(static_cast<double>(channels) * variant.width); };
    const auto deep = [&](int64_t blocks) {
      return static_cast<int64_t>(std::ceil(static_cast<double>(blocks) * variant.depth));
    };
    const MobileStyle style{.norm = chosen(variant.norm, options.norm_activation),
                            .activation = options.norm_activation.activation.value_or(Activation::kSilu),
                            .se_ratio = options.se_ratio};
    int64_t total = 0;
    for (const Stage& stage : kStages) total += deep(stage.blocks);
    const auto features = std::make_shared<Chain>();
    features->push_back(std::make_shared<ConvNorm>(
        ConvShape{.in = channels_, .out = wide(kStages.front().in), .kernel = 3, .stride = 2}, style.norm,
        style.activation));
    int64_t done = 0;
    for (Stage stage : kStages) {
      const auto blocks = std::make_shared<Chain>(options.remat, "features." + std::to_string(features->size()));
      const int64_t out = wide(stage.out);
      stage.in = wide(stage.in);
      stage.out = out;
      for (int64_t i = 0; i < deep(stage.blocks); ++i, ++done) {
        const double depth = static_cast<double>(done) / static_cast<double>(total);
        blocks->push_back(std::make_shared<InvertedResidual>(stage, style, options.stochastic_depth_prob * depth));
        stage.in = out;
        stage.stride = 1;
      }
      features->push_back(blocks);
    }
    const int64_t last = wide(kStages.back().out);
    features->push_back(
        std::make_shared<ConvNorm>(ConvShape{.in = last, .out = 4 * last}, style.norm, style.activation));
    features_ = register_module("features", features);
    // Member 0 of torchvision's classifier is dropout.
    linear_ = register_module("classifier", std::make_shared<torch::nn::Module>())
                  ->register_module("1", torch::nn::Linear(4 * last, options.num_classes));
    const double range = 1.0 / std::sqrt(static_cast<double>(options.num_classes));
    torch::nn::init::uniform_(linear_->weight, -range, range);
    torch::nn::init::zeros_(linear_->bias);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_images("efficientnet", x, channels_);
    const torch::Tensor input = x.to(linear_->weight.scalar_type());
    torch::Tensor y =
        features_->forward(channels_last_ ? input.contiguous(at::MemoryFormat::ChannelsLast) : input).mean({2, 3});
    if (is_training() && dropout_ > 0.0) y = drop(y, dropout_, y.sizes());
    return linear_->forward(y);
  }

  bool channels_last() const override { return channels_last_; }

 private:
  int64_t channels_;
  bool channels_last_;
  double dropout_;
  std::shared_ptr<Chain> features_;
  torch::nn::Linear linear_{nullptr};
};

}  // namespace

std::shared_ptr<LayerModule> efficientnet(int variant, const EfficientNetOptions& options) {
  const auto check_probability = [](const char* name, double value) {
    if (!(value < 1.0)) fail<InvalidArgument>("[models] efficientnet: ", name, " is ", value, ", wanted less than 1");
  };
  check_probability("dropout", options.dropout);
  check_probability("stochastic_depth_prob", options.stochastic_depth_prob);
  if (!(options.se_ratio >= 0.0 && options.se_ratio <= 1.0)) {
    fail<InvalidArgument>("[models] efficientnet: se_ratio is ", options.se_ratio, ", wanted 0 to 1");
  }
  if (options.num_classes < 1 || options.in_channels < 1) {
    fail<InvalidArgument>("[models] efficientnet: num_classes is ", options.num_classes, " and in_channels ",
                          options.in_channels, ", wanted 1 or more");
  }
  return std::make_shared<EfficientNet>(variant_of(variant), options);
}

int64_t efficientnet_image_size(int variant) {
  return variant_of(variant).image_size;
}

}  // namespace cohort::models
