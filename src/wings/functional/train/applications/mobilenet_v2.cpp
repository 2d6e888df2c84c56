// MobileNetV2: inverted residual blocks, each of which widens, convolves each channel by itself, and narrows.
#include <cmath>

#include "cohort/train/layers/merging.h"
#include "wings/functional/train/applications/network.h"

namespace cohort::applications {

namespace {

struct InvertedBlock {
  int64_t number;
  int64_t filters;  // the channels of its output
  int64_t stride;
  int64_t expansion;
};

SymbolicTensor add_inverted(Network& net, const SymbolicTensor& x, const InvertedBlock& block) {
  const bool expands = block.number > 0;
  const std::string prefix = expands ? "block_" + std::to_string(block.number) + "_" : "expanded_conv_";
  const std::string theirs = "features." + std::to_string(block.number + 1) + ".conv.";
  const auto relu6 = [&](const SymbolicTensor& in, const std::string& name) {
    return Network::activation(in, prefix + name, Activation::kRelu6);
  };
  const int64_t channels = x.shape()[0];
  SymbolicTensor y = x;
  if (expands) {
    y = net.conv(y, {prefix + "expand", theirs + "0.0"}, {.filters = block.expansion * channels}, Padding::kSame);
    y = relu6(net.norm(y, {prefix + "expand_BN", theirs + "0.1"}), "expand_relu");
  }
  const std::string depthwise = theirs + (expands ? "1." : "0.");
  if (block.stride == 2) y = net.pad_for_half(y, prefix + "pad", 3);
  y = net.conv(y, {prefix + "depthwise", depthwise + "0"}, {.kernel = 3, .stride = block.stride},
               block.stride == 2 ? Padding::kValid : Padding::kSame);
  y = relu6(net.norm(y, {prefix + "depthwise_BN", depthwise + "1"}), "depthwise_relu");
  y = net.conv(y, {prefix + "project", theirs + (expands ? "2" : "1")}, {.filters = block.filters}, Padding::kSame);
  y = net.norm(y, {prefix + "project_BN", theirs + (expands ? "3" : "2")});
  if (channels != block.filters || block.stride != 1) return y;
  return Add({.name = prefix + "add"})({x, y});
}

}  // namespace

Application MobileNetV2(const MobileNetV2Options& options) {
  const std::string speaker = "[applications] MobileNetV2: ";
  require_alpha(speaker, options.alpha);
  Network net({.speaker = speaker,
               .signature = "features.1.conv.0.0.weight",
               .keras_norm = {.momentum = 0.999, .epsilon = 1e-3}},
              common_options(options));
  const auto wide = [&](int64_t filters) {
    const double channels = static_cast<double>(filters) * options.alpha;
    return divisible_channels(net.is_keras() ? std::floor(channels) : channels);
  };
  const KernelShape stem{.filters = divisible_channels(32.0 * options.alpha), .kernel = 3, .stride = 2};
  SymbolicTensor x = net.conv_to_half(net.input(), {"Conv1", "features.0.0"}, stem);
  x = Network::activation(net.norm(x, {"bn_Conv1", "features.0.1"}), "Conv1_relu", Activation::kRelu6);
  struct Stage {
    int64_t filters, blocks, stride;
  };
  int64_t number = 0;
  for (const Stage& stage :
       {Stage{16, 1, 1}, {24, 2, 2}, {32, 3, 2}, {64, 4, 2}, {96, 3, 1}, {160, 3, 2}, {320, 1, 1}}) {
    for (int64_t i = 0; i < stage.blocks; ++i, ++number) {
      x = add_inverted(net, x,
                       {.number = number,
                        .filters = wide(stage.filters),
                        .stride = i == 0 ? stage.stride : 1,
                        .expansion = number == 0 ? 1 : 6});
    }
  }
  const int64_t last = options.alpha > 1.0 ? divisible_channels(1280.0 * options.alpha) : 1280;
  x = net.conv(x, {"Conv_1", "features.18.0"}, {.filters = last}, Padding::kValid);
  x = Network::activation(net.norm(x, {"Conv_1_bn", "features.18.1"}), "out_relu", Activation::kRelu6);
  return net.finish(net.end(x, "", "", {.theirs = "classifier.1"}),
                    name_with_alpha("mobilenetv2", options.alpha, net.input().shape()[1]));
}

}  // namespace cohort::applications
