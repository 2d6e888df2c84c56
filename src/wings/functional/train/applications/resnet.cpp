// ResNets: residual blocks of three convolutions. torchvision's have their stride in the second one ("v1.5"), Keras' in
// the first one.
#include "base/fail.h"
#include "cohort/train/layers/merging.h"
#include "cohort/train/layers/pooling.h"
#include "wings/functional/train/applications/network.h"

namespace cohort::applications {

namespace {

struct ResidualBlock {
  std::string name;    // "conv2_block1"
  std::string theirs;  // "layer1.0", torchvision's
  int64_t filters;
  int64_t stride;
  bool first;  // the first one of its stage
};

SymbolicTensor add_residual(Network& net, const SymbolicTensor& x, const ResidualBlock& block) {
  const bool bias = net.is_keras();
  const auto conv_norm = [&](const SymbolicTensor& in, const std::string& number, KernelShape shape, Padding padding) {
    const bool shortcut = number == "0";
    const std::string name = block.name + "_" + number;
    const std::string theirs = block.theirs + (shortcut ? ".downsample." : ".");
    shape.bias = bias;
    const SymbolicTensor y =
        net.conv(in, {name + "_conv", theirs + (shortcut ? "0" : "conv" + number)}, shape, padding);
    return net.norm(y, {name + "_bn", theirs + (shortcut ? "1" : "bn" + number)});
  };
  const auto relu = [&](const SymbolicTensor& in, const std::string& suffix) {
    return Network::activation(in, block.name + suffix, Activation::kRelu);
  };
  const int64_t out = 4 * block.filters;
  const int64_t first_stride = net.is_keras() ? block.stride : 1;
  const int64_t second_stride = net.is_keras() ? 1 : block.stride;
  const SymbolicTensor shortcut =
      block.first ? conv_norm(x, "0", {.filters = out, .stride = block.stride}, Padding::kValid) : x;
  SymbolicTensor y = conv_norm(x, "1", {.filters = block.filters, .stride = first_stride}, Padding::kValid);
  y = relu(y, "_1_relu");
  if (second_stride > 1) y = net.pad_for_half(y, block.name + "_2_pad", 3);
  y = conv_norm(y, "2", {.filters = block.filters, .kernel = 3, .stride = second_stride},
                second_stride > 1 ? Padding::kValid : Padding::kSame);
  y = conv_norm(relu(y, "_2_relu"), "3", {.filters = out}, Padding::kValid);
  return relu(Add({.name = block.name + "_add"})({shortcut, y}), "_out");
}

// A block of two convolutions, which Keras has no network of.
SymbolicTensor add_basic(Network& net, const SymbolicTensor& x, const ResidualBlock& block) {
  const auto conv_norm = [&](const SymbolicTensor& in, const std::string& number, int64_t stride) {
    const KernelShape shape{.filters = block.filters, .kernel = 3, .stride = stride};
    const std::string name = block.name + "_" + number;
    const std::string theirs = block.theirs + ".";
    const SymbolicTensor padded = stride > 1 ? net.pad_for_half(in, name + "_pad", shape.kernel) : in;
    const SymbolicTensor y = net.conv(padded, {name + "_conv", theirs + "conv" + number}, shape,
                                      stride > 1 ? Padding::kValid : Padding::kSame);
    return net.norm(y, {name + "_bn", theirs + "bn" + number});
  };
  SymbolicTensor shortcut = x;
  if (block.stride > 1) {
    const std::string theirs = block.theirs + ".downsample.";
    const KernelShape shape{.filters = block.filters, .stride = block.stride};
    shortcut = net.conv(x, {block.name + "_0_conv", theirs + "0"}, shape, Padding::kValid);
    shortcut = net.norm(shortcut, {block.name + "_0_bn", theirs + "1"});
  }
  SymbolicTensor y = Network::activation(conv_norm(x, "1", block.stride), block.name + "_1_relu", Activation::kRelu);
  y = Add({.name = block.name + "_add"})({shortcut, conv_norm(y, "2", 1)});
  return Network::activation(y, block.name + "_out", Activation::kRelu);
}

// Returns the options of a network that torchvision alone has.
ApplicationOptions of_torchvision(const std::string& type, ApplicationOptions options) {
  if (options.form == Form::kKeras) {
    fail<InvalidArgument>("[applications] ", type, ": form is kKeras, but Keras has no such network");
  }
  options.form = Form::kTorchvision;
  return options;
}

using AddBlock = SymbolicTensor (*)(Network& net, const SymbolicTensor& x, const ResidualBlock& block);

struct PreactivatedStage {
  std::string name;  // "conv2"
  int64_t filters;
  int64_t blocks;
  int64_t last_stride;
};

// Adds a stage of ResNetV2: each block has its batch norms and activations before its convolutions.
SymbolicTensor add_preactivated(Network& net, SymbolicTensor x, const PreactivatedStage& stage) {
  for (int64_t i = 1; i <= stage.blocks; ++i) {
    const std::string name = stage.name + "_block" + std::to_string(i);
    const int64_t stride = i == stage.blocks ? stage.last_stride : 1;
    const auto norm_relu = [&](const SymbolicTensor& in, const std::string& part) {
      return Network::activation(net.norm(in, {name + part + "_bn", ""}), name + part + "_relu", Activation::kRelu);
    };
    const SymbolicTensor before = norm_relu(x, "_preact");
    SymbolicTensor shortcut = x;
    if (i == 1) {
      shortcut =
          net.conv(before, {name + "_0_conv", ""}, {.filters = 4 * stage.filters, .bias = true}, Padding::kValid);
    } else if (stride > 1) {
      shortcut = MaxPooling2D({.pool_size = 1, .strides = stride})(x);
    }
    SymbolicTensor y = net.conv(before, {name + "_1_conv", ""}, {.filters = stage.filters}, Padding::kValid);
    y = Network::pad(norm_relu(y, "_1"), name + "_2_pad", {1, 1, 1, 1});
    y = net.conv(y, {name + "_2_conv", ""}, {.filters = stage.filters, .kernel = 3, .stride = stride}, Padding::kValid);
    y = net.conv(norm_relu(y, "_2"), {name + "_3_conv", ""}, {.filters = 4 * stage.filters, .bias = true},
                 Padding::kValid);
    x = Add({.name = name + "_out"})({shortcut, y});
  }
  return x;
}

Application make_resnet_v2(const std::string& number, const std::vector<int64_t>& blocks,
                           const ApplicationOptions& options) {
  Network net({.speaker = "[applications] ResNet" + number + "V2: ",
               .signature = "",
               .keras_norm = {.momentum = 0.99, .epsilon = 1.001e-5}},
              options);
  SymbolicTensor x = Network::pad(net.input(), "conv1_pad", {3, 3, 3, 3});
  x = net.conv(x, {"conv1_conv", ""}, {.filters = 64, .kernel = 7, .stride = 2, .bias = true}, Padding::kValid);
  x = Network::pad(x, "pool1_pad", {1, 1, 1, 1});
  x = MaxPooling2D({.pool_size = 3, .strides = 2, .name = "pool1_pool"})(x);
  int64_t filters = 64;
  for (std::size_t i = 0; i < blocks.size(); ++i, filters *= 2) {
    const int64_t last_stride = i + 1 < blocks.size() ? 2 : 1;
    x = add_preactivated(net, x, {"conv" + std::to_string(i + 2), filters, blocks[i], last_stride});
  }
  x = Network::activation(net.norm(x, {"post_bn", ""}), "post_relu", Activation::kRelu);
  return net.finish(net.end(x, "avg_pool", "max_pool", {}), "resnet" + number + "v2");
}

Application make_resnet(const std::string& type, const std::string& name, const std::vector<int64_t>& depths,
                        const ApplicationOptions& options, AddBlock add = add_residual) {
  Network net({.speaker = "[applications] " + type + ": ",
               .signature = add == add_basic ? "layer1.0.conv2.weight" : "layer1.0.conv3.weight",
               .keras_norm = {.momentum = 0.99, .epsilon = 1.001e-5}},
              options);
  SymbolicTensor x = Network::pad(net.input(), "conv1_pad", {3, 3, 3, 3});
  const KernelShape stem{.filters = 64, .kernel = 7, .stride = 2, .bias = net.is_keras()};
  x = net.norm(net.conv(x, {"conv1_conv", "conv1"}, stem, Padding::kValid), {"conv1_bn", "bn1"});
  x = Network::activation(x, "conv1_relu", Activation::kRelu);
  x = Network::pad(x, "pool1_pad", {1, 1, 1, 1});
  x = MaxPooling2D({.pool_size = 3, .strides = 2, .name = "pool1_pool"})(x);
  int64_t filters = 64;
  for (std::size_t stage = 0; stage < depths.size(); ++stage, filters *= 2) {
    for (int64_t i = 0; i < depths[stage]; ++i) {
      x = add(net, x,
              {.name = "conv" + std::to_string(stage + 2) + "_block" + std::to_string(i + 1),
               .theirs = "layer" + std::to_string(stage + 1) + "." + std::to_string(i),
               .filters = filters,
               .stride = stage > 0 && i == 0 ? 2 : 1,
               .first = i == 0});
    }
  }
  return net.finish(net.end(x, "avg_pool", "max_pool", {.theirs = "fc"}), name);
}

}  // namespace

Application ResNet18(const ApplicationOptions& options) {
  return make_resnet("ResNet18", "resnet18", {2, 2, 2, 2}, of_torchvision("ResNet18", options), add_basic);
}

Application ResNet34(const ApplicationOptions& options) {
  return make_resnet("ResNet34", "resnet34", {3, 4, 6, 3}, of_torchvision("ResNet34", options), add_basic);
}

Application ResNet50(const ApplicationOptions& options) {
  return make_resnet("ResNet50", "resnet50", {3, 4, 6, 3}, options);
}

Application ResNet101(const ApplicationOptions& options) {
  return make_resnet("ResNet101", "resnet101", {3, 4, 23, 3}, options);
}

Application ResNet152(const ApplicationOptions& options) {
  return make_resnet("ResNet152", "resnet152", {3, 8, 36, 3}, options);
}

Application ResNet50V2(const ApplicationOptions& options) {
  return make_resnet_v2("50", {3, 4, 6, 3}, options);
}

Application ResNet101V2(const ApplicationOptions& options) {
  return make_resnet_v2("101", {3, 4, 23, 3}, options);
}

Application ResNet152V2(const ApplicationOptions& options) {
  return make_resnet_v2("152", {3, 8, 36, 3}, options);
}

}  // namespace cohort::applications
