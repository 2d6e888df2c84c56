// DenseNets: each block of two convolutions puts its output beside its input.
#include "cohort/train/layers/merging.h"
#include "cohort/train/layers/pooling.h"
#include "wings/functional/train/applications/network.h"

namespace cohort::applications {

namespace {

constexpr int64_t kGrowth = 32;  // channels that a block adds

SymbolicTensor add_dense_block(Network& net, const SymbolicTensor& x, const std::string& name,
                               const std::string& theirs) {
  SymbolicTensor y = net.norm(x, {name + "_0_bn", theirs + "norm1"});
  y = Network::activation(y, name + "_0_relu", Activation::kRelu);
  y = net.conv(y, {name + "_1_conv", theirs + "conv1"}, {.filters = 4 * kGrowth}, Padding::kValid);
  y = net.norm(y, {name + "_1_bn", theirs + "norm2"});
  y = Network::activation(y, name + "_1_relu", Activation::kRelu);
  y = net.conv(y, {name + "_2_conv", theirs + "conv2"}, {.filters = kGrowth, .kernel = 3}, Padding::kSame);
  return Concatenate({.axis = 1, .name = name + "_concat"})({x, y});
}

SymbolicTensor add_transition(Network& net, const SymbolicTensor& x, const std::string& name,
                              const std::string& theirs) {
  SymbolicTensor y = net.norm(x, {name + "_bn", theirs + "norm"});
  y = Network::activation(y, name + "_relu", Activation::kRelu);
  y = net.conv(y, {name + "_conv", theirs + "conv"}, {.filters = x.shape()[0] / 2}, Padding::kValid);
  return AveragePooling2D({.pool_size = 2, .strides = 2, .name = name + "_pool"})(y);
}

Application make_densenet(const std::string& number, const std::vector<int64_t>& blocks,
                          const ApplicationOptions& options) {
  Network net({.speaker = "[applications] DenseNet" + number + ": ",
               .signature = "features.denseblock1.denselayer1.norm1.weight",
               .keras_norm = {.momentum = 0.99, .epsilon = 1.001e-5}},
              options);
  SymbolicTensor x = Network::pad(net.input(), "zero_padding2d", {3, 3, 3, 3});
  x = net.conv(x, {"conv1_conv", "features.conv0"}, {.filters = 64, .kernel = 7, .stride = 2}, Padding::kValid);
  x = Network::activation(net.norm(x, {"conv1_bn", "features.norm0"}), "conv1_relu", Activation::kRelu);
  x = Network::pad(x, "zero_padding2d_1", {1, 1, 1, 1});
  x = MaxPooling2D({.pool_size = 3, .strides = 2, .name = "pool1"})(x);
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::string ours = std::to_string(stage + 2), theirs = std::to_string(stage + 1);
    for (int64_t i = 1; i <= blocks[stage]; ++i) {
      x = add_dense_block(net, x, "conv" + ours + "_block" + std::to_string(i),
                          "features.denseblock" + theirs + ".denselayer" + std::to_string(i) + ".");
    }
    if (stage + 1 < blocks.size()) {
      x = add_transition(net, x, "pool" + ours, "features.transition" + theirs + ".");
    }
  }
  x = Network::activation(net.norm(x, {"bn", "features.norm5"}), "relu", Activation::kRelu);
  return net.finish(net.end(x, "avg_pool", "max_pool", {.theirs = "classifier"}), "densenet" + number);
}

}  // namespace

Application DenseNet121(const ApplicationOptions& options) {
  return make_densenet("121", {6, 12, 24, 16}, options);
}

Application DenseNet169(const ApplicationOptions& options) {
  return make_densenet("169", {6, 12, 32, 32}, options);
}

Application DenseNet201(const ApplicationOptions& options) {
  return make_densenet("201", {6, 12, 48, 32}, options);
}

}  // namespace cohort::applications
