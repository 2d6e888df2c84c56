// EfficientNets: inverted residual blocks that weigh their channels, in eight sizes.
#include <array>
#include <cmath>

#include "cohort/train/layers/merging.h"
#include "cohort/train/layers/pooling.h"
#include "wings/functional/train/applications/network.h"
#include "wings/functional/train/applications/picture_layers.h"

namespace cohort::applications {

namespace {

struct EfficientVariant {
  double width;     // factor of the channels
  double depth;     // factor of the blocks of a stage
  int64_t size;     // the height and width of the pictures that it was made for
  double dropout;   // before the classifier
  bool wide_norms;  // torchvision's batch norms have TensorFlow's constants
};

constexpr std::array<EfficientVariant, 8> kEfficientVariants = {{{1.0, 1.0, 224, 0.2, false},
                                                                 {1.0, 1.1, 240, 0.2, false},
                                                                 {1.1, 1.2, 260, 0.3, false},
                                                                 {1.2, 1.4, 300, 0.3, false},
                                                                 {1.4, 1.8, 380, 0.4, false},
                                                                 {1.6, 2.2, 456, 0.4, true},
                                                                 {1.8, 2.6, 528, 0.5, true},
                                                                 {2.0, 3.1, 600, 0.5, true}}};

struct EfficientBlock {
  std::string prefix;  // "block1a_"
  std::string theirs;  // "features.1.0.block."
  int64_t filters;     // the channels of its output
  int64_t kernel;
  int64_t stride;
  int64_t expansion;
  double drop_rate;  // the rate at which examples leave the block out
};

const Initializer& efficient_kernels() {
  static const Initializer kInitializer =
      Initializer::variance_scaling({.scale = 2.0, .mode = VarianceScalingOptions::Mode::kFanOut});
  return kInitializer;
}

SymbolicTensor add_efficient(Network& net, const SymbolicTensor& x, const EfficientBlock& block) {
  const int64_t channels = x.shape()[0];
  const std::string& prefix = block.prefix;
  int64_t place = 0;  // among torchvision's parts of a block
  const auto next = [&] { return block.theirs + std::to_string(place++); };
  const auto silu = [&](const SymbolicTensor& in, const std::string& name) {
    return Network::activation(in, prefix + name, Activation::kSilu);
  };
  SymbolicTensor y = x;
  if (block.expansion != 1) {
    const std::string part = next();
    const KernelShape wide{.filters = block.expansion * channels, .initializer = efficient_kernels()};
    y = net.conv(y, {prefix + "expand_conv", part + ".0"}, wide, Padding::kSame);
    y = silu(net.norm(y, {prefix + "expand_bn", part + ".1"}), "expand_activation");
  }
  const bool halves = block.stride == 2;
  if (halves) y = net.pad_for_half(y, prefix + "dwconv_pad", block.kernel);
  const std::string depthwise = next();
  y = net.conv(y, {prefix + "dwconv", depthwise + ".0"},
               {.kernel = block.kernel, .stride = block.stride, .initializer = efficient_kernels()},
               halves ? Padding::kValid : Padding::kSame);
  y = silu(net.norm(y, {prefix + "bn", depthwise + ".1"}), "activation");
  const int64_t expanded = block.expansion * channels;
  SymbolicTensor weight = GlobalAveragePooling2D({.name = prefix + "se_squeeze"})(y);
  weight = Reshape({expanded, 1, 1}).named(prefix + "se_reshape")(weight);
  const std::string weighs = next();
  weight = net.conv(weight, {prefix + "se_reduce", weighs + ".fc1"},
                    {.filters = std::max<int64_t>(1, channels / 4),
                     .bias = true,
                     .activation = Activation::kSilu,
                     .initializer = efficient_kernels()},
                    Padding::kSame);
  weight = net.conv(
      weight, {prefix + "se_expand", weighs + ".fc2"},
      {.filters = expanded, .bias = true, .activation = Activation::kSigmoid, .initializer = efficient_kernels()},
      Padding::kSame);
  y = Multiply({.name = prefix + "se_excite"})({y, weight});
  const std::string project = next();
  y = net.conv(y, {prefix + "project_conv", project + ".0"},
               {.filters = block.filters, .initializer = efficient_kernels()}, Padding::kSame);
  y = net.norm(y, {prefix + "project_bn", project + ".1"});
  if (block.stride != 1 || channels != block.filters) return y;
  if (block.drop_rate > 0.0) y = example_dropout_layer(block.drop_rate, prefix + "drop")(y);
  return Add({.name = prefix + "add"})({y, x});
}

struct EfficientStage {
  int64_t kernel, blocks, filters, expansion, stride;
};

constexpr std::array<EfficientStage, 7> kEfficientStages = {{{3, 1, 16, 1, 1},
                                                             {3, 2, 24, 6, 2},
                                                             {5, 2, 40, 6, 2},
                                                             {3, 3, 80, 6, 2},
                                                             {5, 3, 112, 6, 1},
                                                             {5, 4, 192, 6, 2},
                                                             {3, 1, 320, 6, 1}}};

SymbolicTensor efficient_blocks(Network& net, SymbolicTensor x, const EfficientVariant& variant) {
  constexpr double kDropRate = 0.2;
  const auto blocks_of = [&](const EfficientStage& stage) {
    return static_cast<int64_t>(std::ceil(variant.depth * static_cast<double>(stage.blocks)));
  };
  int64_t all = 0;
  for (const EfficientStage& stage : kEfficientStages) all += blocks_of(stage);
  int64_t number = 0;
  for (std::size_t i = 0; i < kEfficientStages.size(); ++i) {
    const EfficientStage& stage = kEfficientStages[i];
    const std::string stage_number = std::to_string(i + 1);
    for (int64_t j = 0; j < blocks_of(stage); ++j, ++number) {
      x = add_efficient(net, x,
                        {.prefix = "block" + stage_number + static_cast<char>('a' + j) + "_",
                         .theirs = "features." + stage_number + "." + std::to_string(j) + ".block.",
                         .filters = divisible_channels(variant.width * static_cast<double>(stage.filters)),
                         .kernel = stage.kernel,
                         .stride = j == 0 ? stage.stride : 1,
                         .expansion = stage.expansion,
                         .drop_rate = kDropRate * static_cast<double>(number) / static_cast<double>(all)});
    }
  }
  return x;
}

Application make_efficientnet(std::size_t number, const ApplicationOptions& options) {
  const EfficientVariant& variant = kEfficientVariants[number];
  const NormConstants tensorflow = {.momentum = 0.99, .epsilon = 1e-3};
  Family family{.speaker = "[applications] EfficientNetB" + std::to_string(number) + ": ",
                .signature = "features.1.0.block.1.fc1.weight",
                .keras_norm = tensorflow};
  if (variant.wide_norms) family.torchvision_norm = tensorflow;
  family.usual_size = variant.size;
  Network net(family, options);
  SymbolicTensor x = net.input();
  if (net.is_keras()) {
    x = layer_of("Rescaling", {{"scale", 1.0 / 255.0}, {"offset", 0.0}}, "rescaling")(x);
    // Its statistics are 0 and 1 until weights bring others.
    x = layer_of("Normalization", {{"axis", std::vector<int64_t>{1}}}, "normalization", "preprocessing")(x);
  }
  const auto wide = [&](double channels) { return divisible_channels(variant.width * channels); };
  x = net.conv(net.pad_for_half(x, "stem_conv_pad", 3), {"stem_conv", "features.0.0"},
               {.filters = wide(32.0), .kernel = 3, .stride = 2, .initializer = efficient_kernels()}, Padding::kValid);
  x = Network::activation(net.norm(x, {"stem_bn", "features.0.1"}), "stem_activation", Activation::kSilu);
  x = efficient_blocks(net, x, variant);
  x = net.conv(x, {"top_conv", "features.8.0"}, {.filters = wide(1280.0), .initializer = efficient_kernels()},
               Padding::kSame);
  x = Network::activation(net.norm(x, {"top_bn", "features.8.1"}), "top_activation", Activation::kSilu);
  const Initializer dense =
      Initializer::variance_scaling({.scale = 1.0 / 3.0,
                                     .mode = VarianceScalingOptions::Mode::kFanOut,
                                     .distribution = VarianceScalingOptions::Distribution::kUniform});
  const Classifier classifier{.theirs = "classifier.1", .dropout = variant.dropout, .initializer = dense};
  return net.finish(net.end(x, "avg_pool", "max_pool", classifier), "efficientnetb" + std::to_string(number));
}

}  // namespace

Application EfficientNetB0(const ApplicationOptions& options) {
  return make_efficientnet(0, options);
}

Application EfficientNetB1(const ApplicationOptions& options) {
  return make_efficientnet(1, options);
}

Application EfficientNetB2(const ApplicationOptions& options) {
  return make_efficientnet(2, options);
}

Application EfficientNetB3(const ApplicationOptions& options) {
  return make_efficientnet(3, options);
}

Application EfficientNetB4(const ApplicationOptions& options) {
  return make_efficientnet(4, options);
}

Application EfficientNetB5(const ApplicationOptions& options) {
  return make_efficientnet(5, options);
}

Application EfficientNetB6(const ApplicationOptions& options) {
  return make_efficientnet(6, options);
}

Application EfficientNetB7(const ApplicationOptions& options) {
  return make_efficientnet(7, options);
}

}  // namespace cohort::applications
