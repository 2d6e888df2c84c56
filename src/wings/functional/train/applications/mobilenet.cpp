// MobileNet, of the first version: a convolution of each channel by itself, and one of each place.
#include "base/fail.h"
#include "cohort/train/layers/pooling.h"
#include "wings/functional/train/applications/network.h"

namespace cohort::applications {

namespace {

SymbolicTensor add_separable(Network& net, const SymbolicTensor& x, int64_t number, int64_t filters, int64_t stride) {
  const std::string end = "_" + std::to_string(number);
  SymbolicTensor y = stride > 1 ? Network::pad(x, "conv_pad" + end, {0, 1, 0, 1}) : x;
  y = net.conv(y, {"conv_dw" + end, ""}, {.kernel = 3, .stride = stride},
               stride > 1 ? Padding::kValid : Padding::kSame);
  y = Network::activation(net.norm(y, {"conv_dw" + end + "_bn", ""}), "conv_dw" + end + "_relu", Activation::kRelu6);
  y = net.conv(y, {"conv_pw" + end, ""}, {.filters = filters}, Padding::kSame);
  return Network::activation(net.norm(y, {"conv_pw" + end + "_bn", ""}), "conv_pw" + end + "_relu", Activation::kRelu6);
}

}  // namespace

Application MobileNet(const MobileNetOptions& options) {
  const std::string speaker = "[applications] MobileNet: ";
  require_alpha(speaker, options.alpha);
  Network net({.speaker = speaker, .signature = "", .keras_norm = {.momentum = 0.99, .epsilon = 1e-3}},
              {.input_shape = options.input_shape,
               .include_top = options.include_top,
               .pooling = options.pooling,
               .classes = options.classes,
               .classifier_activation = options.classifier_activation,
               .name = options.name,
               .dtype = options.dtype});
  const auto wide = [&](int64_t filters) {
    const auto channels = static_cast<int64_t>(static_cast<double>(filters) * options.alpha);
    if (channels > 0) return channels;
    fail<InvalidArgument>(speaker, "alpha is ", options.alpha, ", which leaves none of ", filters, " channels");
  };
  SymbolicTensor x =
      net.conv(net.input(), {"conv1", ""}, {.filters = wide(32), .kernel = 3, .stride = 2}, Padding::kSame);
  x = Network::activation(net.norm(x, {"conv1_bn", ""}), "conv1_relu", Activation::kRelu6);
  struct Block {
    int64_t filters, stride;
  };
  int64_t number = 0;
  for (const Block& block : {Block{64, 1},
                             {128, 2},
                             {128, 1},
                             {256, 2},
                             {256, 1},
                             {512, 2},
                             {512, 1},
                             {512, 1},
                             {512, 1},
                             {512, 1},
                             {512, 1},
                             {1024, 2},
                             {1024, 1}}) {
    x = add_separable(net, x, ++number, wide(block.filters), block.stride);
  }
  if (options.include_top) {
    x = GlobalAveragePooling2D({.keepdims = true})(x);
    x = Dropout({.rate = options.dropout, .name = "dropout"})(x);
    x = net.conv(x, {"conv_preds", ""}, {.filters = options.classes, .bias = true}, Padding::kSame);
    x = Network::activation(Reshape({options.classes}).named("reshape_2")(x), "predictions",
                            options.classifier_activation);
  } else {
    x = net.pooled(x, "", "");
  }
  return net.finish(x, name_with_alpha("mobilenet", options.alpha, net.input().shape()[1]));
}

}  // namespace cohort::applications
