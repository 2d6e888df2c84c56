// Convolutions, pooling and borders with odd sizes, as Keras has them (same_padding.json).
#include <gtest/gtest.h>

#include <map>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"

namespace cohort::testing::padding_test {
namespace {

using nlohmann::json;

// One number, or one for height and one for width.
Size2 size_of(const json& options, const char* key, int64_t otherwise) {
  if (!options.contains(key)) return otherwise;
  const json& value = options.at(key);
  return value.is_array() ? Size2(value.at(0), value.at(1)) : Size2(value.get<int64_t>());
}

Padding padding_of(const json& options) {
  return options.value("padding", "valid") == "same" ? Padding::kSame : Padding::kValid;
}

Border2 border_of(const json& sides) {
  return {sides.at(0).at(0), sides.at(0).at(1), sides.at(1).at(0), sides.at(1).at(1)};
}

Layer convolution(const std::string& layer, const json& options) {
  const Size2 kernel = size_of(options, "kernel_size", 0);
  const Size2 strides = size_of(options, "strides", 1);
  const Size2 dilation = size_of(options, "dilation_rate", 1);
  const int64_t filters = options.value("filters", 0);
  if (layer == "DepthwiseConv2D") {
    return DepthwiseConv2D({.kernel_size = kernel,
                            .strides = strides,
                            .padding = padding_of(options),
                            .depth_multiplier = options.value("depth_multiplier", 1),
                            .dilation_rate = dilation});
  }
  if (layer == "SeparableConv2D") {
    return SeparableConv2D({.filters = filters,
                            .kernel_size = kernel,
                            .strides = strides,
                            .padding = padding_of(options),
                            .depth_multiplier = options.value("depth_multiplier", 1),
                            .dilation_rate = dilation});
  }
  if (layer == "Conv2DTranspose") {
    Conv2DTransposeOptions made{.filters = filters,
                                .kernel_size = kernel,
                                .strides = strides,
                                .padding = padding_of(options),
                                .dilation_rate = dilation};
    if (options.contains("output_padding")) made.output_padding = size_of(options, "output_padding", 0);
    return Conv2DTranspose(made);
  }
  return Conv2D({.filters = filters,
                 .kernel_size = kernel,
                 .strides = strides,
                 .padding = padding_of(options),
                 .dilation_rate = dilation,
                 .groups = options.value("groups", 1)});
}

Layer layer_of(const json& golden) {
  const std::string layer = golden.at("layer");
  const json& options = golden.at("options");
  if (layer.ends_with("Conv2D") || layer == "Conv2DTranspose") return convolution(layer, options);
  if (layer == "GlobalAveragePooling2D") return GlobalAveragePooling2D();
  if (layer == "GlobalMaxPooling2D") return GlobalMaxPooling2D();
  if (layer == "ZeroPadding2D") return ZeroPadding2D(border_of(options.at("padding")));
  if (layer == "Cropping2D") return Cropping2D(border_of(options.at("cropping")));
  if (layer == "UpSampling2D") {
    using Interpolation = UpSampling2DOptions::Interpolation;
    const bool bilinear = options.value("interpolation", "nearest") == "bilinear";
    return UpSampling2D({.size = size_of(options, "size", 2),
                         .interpolation = bilinear ? Interpolation::kBilinear : Interpolation::kNearest});
  }
  Pooling2DOptions pooling{.pool_size = size_of(options, "pool_size", 2), .padding = padding_of(options)};
  if (options.contains("strides")) pooling.strides = size_of(options, "strides", 1);
  if (layer == "MaxPooling2D") return MaxPooling2D(pooling);
  if (layer == "AveragePooling2D") return AveragePooling2D(pooling);
  throw std::invalid_argument("there is no layer " + layer);
}

// Returns a kernel of Keras' layout in LibTorch's.
torch::Tensor kernel_for(const std::string& layer, const std::string& name, const torch::Tensor& keras) {
  if (name == "bias") return keras;
  const bool depthwise = name == "depthwise_kernel" || layer == "DepthwiseConv2D";
  if (!depthwise) return keras.permute({3, 2, 0, 1});
  return keras.permute({2, 3, 0, 1}).reshape({keras.size(2) * keras.size(3), 1, keras.size(0), keras.size(1)});
}

const std::map<std::string, std::string> kParameters = {{"kernel", "weight"},
                                                        {"bias", "bias"},
                                                        {"depthwise_kernel", "depthwise_weight"},
                                                        {"pointwise_kernel", "pointwise_weight"}};

TEST(GoldenPadding, ConvolutionsPoolingAndBorders) {
  check_golden("same_padding.json", [](const json& golden) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor x = golden_tensor(golden.at("input")).permute({0, 3, 1, 2}).contiguous();
    const BuildContext context{.name = "it", .input = x.sizes().slice(1).vec(), .dtype = torch::kDouble};
    const Layer layer = layer_of(golden);
    const Shape promised = layer.kind().output_shape(context);
    const auto module = layer.kind().build(context);
    if (golden.contains("weights")) {
      for (const auto& [name, values] : golden.at("weights").items()) {
        const auto parameters = module->named_parameters();
        torch::Tensor parameter = parameters[kParameters.at(name)];
        parameter.copy_(kernel_for(golden.at("layer"), name, golden_tensor(values)));
      }
    }
    const torch::Tensor y = module->forward(x);
    if (y.sizes().slice(1).vec() != promised) return c10::str("the shape is ", y.sizes(), ", promised ", promised);
    return difference(golden.at("layer"), y.dim() == 4 ? y.permute({0, 2, 3, 1}) : y,
                      golden_tensor(golden.at("output")), {.absolute = 1e-5, .relative = 1e-5});
  });
}

}  // namespace
}  // namespace cohort::testing::padding_test
