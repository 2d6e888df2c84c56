// Keras 3's layers with given weights: outputs, gradients and statistics (layers_keras3.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"
#include "tests/golden/keras_weights.h"

namespace cohort::testing::golden_layers_test {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

Size2 size_of(const json& options, const char* key, int64_t otherwise = 1) {
  if (!options.contains(key)) return otherwise;
  const json& value = options.at(key);
  return value.is_array() ? Size2(value.at(0), value.at(1)) : Size2(value.get<int64_t>());
}

Padding padding_of(const json& options) {
  const std::string name = options.value("padding", "valid");
  if (name == "causal") return Padding::kCausal;
  return name == "same" ? Padding::kSame : Padding::kValid;
}

Layer convolution_of(const std::string& layer, const json& options) {
  const int64_t filters = options.value("filters", 0);
  if (layer == "Conv1D") {
    return Conv1D({.filters = filters,
                   .kernel_size = options.at("kernel_size"),
                   .padding = padding_of(options),
                   .dilation_rate = options.value("dilation_rate", 1)});
  }
  if (layer == "Conv3D") return Conv3D({.filters = filters, .kernel_size = options.at("kernel_size").get<int64_t>()});
  const Size2 kernel = size_of(options, "kernel_size"), strides = size_of(options, "strides");
  if (layer == "DepthwiseConv2D") return DepthwiseConv2D({.kernel_size = kernel, .strides = strides});
  if (layer == "Conv2DTranspose") {
    return Conv2DTranspose(
        {.filters = filters, .kernel_size = kernel, .strides = strides, .padding = padding_of(options)});
  }
  if (layer == "SeparableConv2D") {
    return SeparableConv2D({.filters = filters,
                            .kernel_size = kernel,
                            .strides = strides,
                            .padding = padding_of(options),
                            .dilation_rate = size_of(options, "dilation_rate")});
  }
  return Conv2D({.filters = filters, .kernel_size = kernel, .strides = strides, .padding = padding_of(options)});
}

Layer recurrent_of(const json& golden) {
  const json& options = golden.at("options");
  const Layer lstm = LSTM({.units = options.at("units"),
                           .return_sequences = options.at("return_sequences"),
                           .go_backwards = options.value("go_backwards", false)});
  if (golden.at("layer") == "LSTM") return lstm;
  using Merge = BidirectionalOptions::Merge;
  const std::map<std::string, Merge> merges = {
      {"concat", Merge::kConcat}, {"sum", Merge::kSum}, {"mul", Merge::kMul}, {"ave", Merge::kAve}};
  return Bidirectional(lstm, {.merge_mode = merges.at(options.at("merge"))});
}

Layer layer_of(const json& golden) {
  const std::string layer = golden.at("layer");
  const json& options = golden.at("options");
  if (layer == "LSTM" || layer == "Bidirectional") return recurrent_of(golden);
  if (layer == "LayerNormalization") return LayerNormalization({.dimensions = options.at("dimensions")});
  if (layer == "RMSNormalization") return RMSNormalization({.dimensions = options.at("dimensions")});
  if (layer == "GroupNormalization") return GroupNormalization({.groups = options.at("groups")});
  if (layer == "BatchNormalization") return BatchNormalization({.axis = -1, .momentum = options.at("momentum")});
  if (layer == "MultiHeadAttention") {
    return MultiHeadAttention({.num_heads = options.at("num_heads"),
                               .key_dim = options.at("key_dim"),
                               .value_dim = options.at("value_dim"),
                               .use_causal_mask = options.at("causal")});
  }
  if (layer == "Embedding") {
    return Embedding(options.at("input_dim").get<int64_t>(), options.at("output_dim").get<int64_t>());
  }
  if (layer == "TimeDistributed") return TimeDistributed(convolution_of(options.at("inner"), options));
  if (layer == "Activation") return Activation(Activation::parse(options.at("activation").get<std::string>()));
  if (layer == "GlobalAveragePooling1D") return GlobalAveragePooling1D();
  if (layer.find("Conv") != std::string::npos) return convolution_of(layer, options);
  throw std::invalid_argument("there is no layer " + layer);
}

// Returns the dimension of the channels here, where they are the last one in Keras; -1: here, too.
int64_t channels_of(const std::string& layer) {
  if (layer == "TimeDistributed") return 2;
  return layer.find("Conv") != std::string::npos || layer == "GroupNormalization" ? 1 : -1;
}

Tensor tensor_of(const torch::nn::Module& module, const std::string& name) {
  const auto parameters = module.named_parameters(), buffers = module.named_buffers();
  for (const auto* each : {&parameters, &buffers}) {
    if (const Tensor* found = each->find(name)) return *found;
  }
  throw std::invalid_argument("there is no parameter " + name);
}

void set_weights(LayerModule& module, const json& golden) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < golden.at("names").size(); ++i) {
    const Tensor keras = golden_tensor(golden.at("weights")[i]);
    for (const auto& [name, value] : own_weights(golden.at("layer"), golden.at("names")[i], keras)) {
      tensor_of(module, name).copy_(value);
    }
  }
}

std::string gradients_apart(LayerModule& module, const json& golden) {
  std::string apart;
  for (std::size_t i = 0; i < golden.at("trainable").size(); ++i) {
    const Tensor keras = golden_tensor(golden.at("grads")[i]);
    for (const auto& [name, value] : own_weights(golden.at("layer"), golden.at("trainable")[i], keras)) {
      apart += difference("gradient of " + name, tensor_of(module, name).grad(), value, kWithin);
    }
  }
  return apart;
}

// Only batch norm has statistics; that of other layers is the state of Keras' generators.
std::string statistics_apart(LayerModule& module, const json& golden) {
  if (golden.at("layer") != "BatchNormalization") return "";
  const json& after = golden.at("nontrainable_after");
  return difference("running_mean", tensor_of(module, "running_mean"), golden_tensor(after.at(0)), kWithin) +
         difference("running_var", tensor_of(module, "running_var"), golden_tensor(after.at(1)), kWithin);
}

// Keras' MultiHeadAttention had the mask as that of the keys, but in the case in which masked steps do not count.
Tensor called(LayerModule& module, const json& golden, const Tensor& x, const Tensor& mask) {
  auto* const attention = dynamic_cast<Attention*>(&module);
  if (attention != nullptr && !golden.value("only_counted", false)) {
    return attention->attend({.query = x, .value = x, .value_mask = mask}).output;
  }
  return mask.defined() ? module.forward_masked(x, mask) : module.forward(x);
}

std::string check_layer(const json& golden) {
  const std::string name = golden.at("layer");
  const int64_t channels = channels_of(name);
  const bool integers = golden.at("ints");
  const Tensor input = golden_tensor(golden.at("input"), integers ? torch::kLong : torch::kDouble);
  const Tensor x = input.movedim(-1, channels).contiguous();
  if (!integers) x.requires_grad_();
  const auto module = layer_of(golden).kind().build(
      {.name = "it", .input = x.sizes().slice(1).vec(), .dtype = torch::kDouble, .input_dtype = x.scalar_type()});
  set_weights(*module, golden);
  module->train(golden.at("options").value("training", true));
  const Tensor mask = golden.at("mask").is_null() ? Tensor() : golden_tensor(golden.at("mask"), torch::kBool);
  Tensor y = called(*module, golden, x, mask);
  if (channels >= 0) y = y.movedim(channels, -1);
  (y * golden_tensor(golden.at("g"))).sum().backward();
  Tensor wanted = golden_tensor(golden.at("output"));
  if (golden.value("only_counted", false)) {  // the rest is anything
    y = y.index({mask});
    wanted = wanted.index({mask});
  }
  std::string apart = difference("output", y, wanted, kWithin);
  if (!integers) {
    apart += difference("gradient of the input", x.grad().movedim(channels, -1), golden_tensor(golden.at("grad_input")),
                        kWithin);
  }
  return apart + gradients_apart(*module, golden) + statistics_apart(*module, golden);
}

TEST(GoldenLayers, Keras3) {
  check_golden("layers_keras3.json", check_layer, {{32, "sees no key"}, {33, "sees no key"}, {57, "`sparsemax`"}});
}

}  // namespace
}  // namespace cohort::testing::golden_layers_test
