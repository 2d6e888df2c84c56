// MobileNetV3: inverted residual blocks, some of which weigh their channels by what is in them all (squeeze and
// excitation).
#include <vector>

#include "base/fail.h"
#include "cohort/train/layers/merging.h"
#include "cohort/train/layers/pooling.h"
#include "wings/functional/train/applications/network.h"
#include "wings/functional/train/applications/picture_layers.h"

namespace cohort::applications {

namespace {

struct MobileBlock {
  double expansion;  // channels within the block for each channel of its input
  int64_t filters;   // the channels of its output, before alpha
  bool large;        // a kernel of 5 x 5
  int64_t stride;
  bool weighs;  // squeeze and excitation
  bool hard;    // hard_swish instead of relu
};

const std::vector<MobileBlock> kSmall = {{1, 16, false, 2, true, false},
                                         {72.0 / 16, 24, false, 2, false, false},
                                         {88.0 / 24, 24, false, 1, false, false},
                                         {4, 40, true, 2, true, true},
                                         {6, 40, true, 1, true, true},
                                         {6, 40, true, 1, true, true},
                                         {3, 48, true, 1, true, true},
                                         {3, 48, true, 1, true, true},
                                         {6, 96, true, 2, true, true},
                                         {6, 96, true, 1, true, true},
                                         {6, 96, true, 1, true, true}};
const std::vector<MobileBlock> kLarge = {
    {1, 16, false, 1, false, false},  {4, 24, false, 2, false, false},  {3, 24, false, 1, false, false},
    {3, 40, true, 2, true, false},    {3, 40, true, 1, true, false},    {3, 40, true, 1, true, false},
    {6, 80, false, 2, false, true},   {2.5, 80, false, 1, false, true}, {2.3, 80, false, 1, false, true},
    {2.3, 80, false, 1, false, true}, {6, 112, false, 1, true, true},   {6, 112, false, 1, true, true},
    {6, 160, true, 2, true, true},    {6, 160, true, 1, true, true},    {6, 160, true, 1, true, true}};

class MobileNetV3 {
 public:
  MobileNetV3(Network& net, const MobileNetV3Options& options) : net_(net), options_(options) {}

  SymbolicTensor features(const std::vector<MobileBlock>& blocks);
  SymbolicTensor top(const SymbolicTensor& x, int64_t last_channels);

 private:
  int64_t wide(double channels) const { return divisible_channels(channels * options_.alpha); }
  // Adds an activation with the name that Keras gives one without a name.
  SymbolicTensor activation(const SymbolicTensor& x, bool hard);
  SymbolicTensor block(const SymbolicTensor& x, const MobileBlock& block, int64_t input);
  SymbolicTensor weighed(const SymbolicTensor& x, const std::string& prefix, const std::string& theirs);

  Network& net_;
  const MobileNetV3Options& options_;
  int64_t number_ = 0;  // the number of the next block
  int64_t relus_ = 0;
  int64_t hards_ = 0;
};

std::string numbered(const std::string& name, int64_t number) {
  return number == 0 ? name : name + "_" + std::to_string(number);
}

SymbolicTensor MobileNetV3::activation(const SymbolicTensor& x, bool hard) {
  if (hard && !options_.minimalistic) {
    return Network::activation(x, numbered("activation", hards_++), Activation::kHardSilu);
  }
  return Network::activation(x, numbered("re_lu", relus_++), Activation::kRelu);
}

SymbolicTensor MobileNetV3::weighed(const SymbolicTensor& x, const std::string& prefix, const std::string& theirs) {
  const int64_t channels = x.shape()[0];
  SymbolicTensor y = GlobalAveragePooling2D({.keepdims = true, .name = prefix + "avg_pool"})(x);
  const KernelShape narrow{.filters = divisible_channels(0.25 * static_cast<double>(channels)), .bias = true};
  y = net_.conv(y, {prefix + "conv", theirs + ".fc1"}, narrow, Padding::kSame);
  y = Network::activation(y, prefix + "relu", Activation::kRelu);
  y = net_.conv(y, {prefix + "conv_1", theirs + ".fc2"}, {.filters = channels, .bias = true}, Padding::kSame);
  y = Network::activation(y + 3.0, numbered("re_lu", relus_++), Activation::kRelu6) * (1.0 / 6.0);
  return Multiply({.name = prefix + "mul"})({x, y});
}

SymbolicTensor MobileNetV3::block(const SymbolicTensor& x, const MobileBlock& block, int64_t input) {
  const int64_t channels = x.shape()[0];
  const std::string prefix = number_ == 0 ? "expanded_conv_" : "expanded_conv_" + std::to_string(number_) + "_";
  int64_t place = 0;  // among torchvision's parts of a block
  const std::string theirs = "features." + std::to_string(number_ + 1) + ".block.";
  const auto next = [&] { return theirs + std::to_string(place++); };
  const int64_t expanded = net_.is_keras() ? divisible_channels(static_cast<double>(channels) * block.expansion)
                                           : wide(static_cast<double>(input) * block.expansion);
  SymbolicTensor y = x;
  if (number_ > 0) {
    const std::string part = next();
    y = net_.conv(y, {prefix + "expand", part + ".0"}, {.filters = expanded}, Padding::kSame);
    y = activation(net_.norm(y, {prefix + "expand_bn", part + ".1"}), block.hard);
  }
  const int64_t kernel = block.large && !options_.minimalistic ? 5 : 3;
  const bool halves = block.stride == 2;
  if (halves) y = net_.pad_for_half(y, prefix + "depthwise_pad", kernel);
  const std::string depthwise = next();
  y = net_.conv(y, {prefix + "depthwise", depthwise + ".0"}, {.kernel = kernel, .stride = block.stride},
                halves ? Padding::kValid : Padding::kSame);
  y = activation(net_.norm(y, {prefix + "depthwise_bn", depthwise + ".1"}), block.hard);
  if (block.weighs && !options_.minimalistic) y = weighed(y, prefix + "squeeze_excite_", next());
  const std::string project = next();
  const int64_t filters = wide(static_cast<double>(block.filters));
  y = net_.conv(y, {prefix + "project", project + ".0"}, {.filters = filters}, Padding::kSame);
  y = net_.norm(y, {prefix + "project_bn", project + ".1"});
  ++number_;
  if (block.stride != 1 || channels != filters) return y;
  return Add({.name = prefix + "add"})({x, y});
}

SymbolicTensor MobileNetV3::features(const std::vector<MobileBlock>& blocks) {
  SymbolicTensor x = net_.input();
  if (options_.include_preprocessing.value_or(net_.is_keras())) {
    x = layer_of("Rescaling", {{"scale", 1.0 / 127.5}, {"offset", -1.0}}, "rescaling")(x);
  }
  const KernelShape stem{.filters = net_.is_keras() ? 16 : wide(16.0), .kernel = 3, .stride = 2};
  x = net_.conv_to_half(x, {"conv", "features.0.0"}, stem);
  x = activation(net_.norm(x, {"conv_bn", "features.0.1"}), /*hard=*/true);
  int64_t input = 16;
  for (const MobileBlock& each : blocks) {
    x = block(x, each, input);
    input = each.filters;
  }
  const std::string last = "features." + std::to_string(number_ + 1);
  x = net_.conv(x, {"conv_1", last + ".0"}, {.filters = 6 * x.shape()[0]}, Padding::kSame);
  return activation(net_.norm(x, {"conv_1_bn", last + ".1"}), /*hard=*/true);
}

SymbolicTensor MobileNetV3::top(const SymbolicTensor& x, int64_t last_channels) {
  if (!options_.include_top) return net_.pooled(x, "avg_pool", "max_pool");
  if (options_.alpha > 1.0 || !net_.is_keras()) last_channels = wide(static_cast<double>(last_channels));
  SymbolicTensor y = GlobalAveragePooling2D({.keepdims = true})(x);
  y = net_.conv(y, {"conv_2", "classifier.0"}, {.filters = last_channels, .bias = true}, Padding::kSame);
  y = activation(y, /*hard=*/true);
  if (options_.dropout_rate > 0.0) y = Dropout({.rate = options_.dropout_rate, .name = "dropout"})(y);
  y = net_.conv(y, {"logits", "classifier.3"}, {.filters = options_.classes, .bias = true}, Padding::kSame);
  return Network::activation(Flatten()(y), "predictions", options_.classifier_activation);
}

Application make_mobilenet_v3(const std::string& name, const std::vector<MobileBlock>& blocks, int64_t last_channels,
                              const MobileNetV3Options& options) {
  const std::string speaker = "[applications] " + name + ": ";
  require_alpha(speaker, options.alpha);
  Network net({.speaker = speaker,
               .signature = "features.1.block.0.0.weight",
               .keras_norm = {.momentum = 0.999, .epsilon = 1e-3},
               .torchvision_norm = {.momentum = 0.99, .epsilon = 1e-3},
               .any_size = true},
              common_options(options));
  if (!net.is_keras() && (options.minimalistic || options.include_preprocessing.value_or(false))) {
    fail<InvalidArgument>(speaker, options.minimalistic ? "minimalistic" : "include_preprocessing",
                          " goes with Keras' form alone");
  }
  MobileNetV3 made(net, options);
  const SymbolicTensor x = made.features(blocks);
  return net.finish(made.top(x, last_channels), name);
}

}  // namespace

Application MobileNetV3Small(const MobileNetV3Options& options) {
  return make_mobilenet_v3("MobileNetV3Small", kSmall, 1024, options);
}

Application MobileNetV3Large(const MobileNetV3Options& options) {
  return make_mobilenet_v3("MobileNetV3Large", kLarge, 1280, options);
}

}  // namespace cohort::applications
