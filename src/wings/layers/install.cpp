// Tells files of the layers of this wing.
#include "base/extension.h"
#include "cohort/train/layers/adaptive_pooling.h"
#include "cohort/train/layers/layer_normalization.h"
#include "cohort/train/layers/more_convolutions.h"
#include "cohort/train/layers/noise.h"
#include "cohort/train/layers/pooling_1d.h"
#include "cohort/train/layers/pooling_3d.h"
#include "cohort/train/layers/rearranging.h"
#include "cohort/train/layers/relu.h"
#include "cohort/train/layers/sequences.h"
#include "wings/layers/train/channels_last.h"
#include "wings/layers/train/option_names.h"

namespace cohort {

namespace {

// Takes options of layers without a struct of them. InvalidArgument: one is not there, or there are others.
class Given {
 public:
  Given(std::string_view type, const LayerConfig& config) : type_(type), config_(config) {}

  template <typename T>
  Given& take(std::string_view name, T& option) {
    for (const auto& [given, value] : config_) {
      if (given == name) return set_option(name, value, option), ++taken_, *this;
    }
    fail<InvalidArgument>("[layers] ", type_, ": there is no option \"", name, "\"");
  }
  Layer layer() {
    std::vector<Layer> layers;
    take("layer", layers);
    if (layers.size() == 1) return layers.front();
    fail<InvalidArgument>("[layers] ", type_, ": layer has ", layers.size(), " layers, wanted one");
  }
  void end() const {
    if (taken_ < config_.size()) fail<InvalidArgument>("[layers] ", type_, " has other options only");
  }

 private:
  std::string_view type_;
  const LayerConfig& config_;
  std::size_t taken_ = 0;
};

// Returns the row of a layer that is made of one value.
template <typename T, typename Make>
LayerRow value_row(std::string_view type, std::string_view option, const Make& make) {
  const auto tell = [option](const T& value) { return LayerConfig{{std::string(option), option_value(value)}}; };
  return row_of<T>(type, tell, [type, option, make](const LayerConfig& config) {
    auto value = T{0};
    Given(type, config).take(option, value).end();
    return make(value);
  });
}

using Sides = std::vector<int64_t>;

Sides sides_of(const Border1& b) {
  return {b.before, b.after};
}
Sides sides_of(const Border2& b) {
  return {b.top, b.bottom, b.left, b.right};
}
Sides sides_of(const Border3& b) {
  return {b.depth.before, b.depth.after, b.height.before, b.height.after, b.width.before, b.width.after};
}

template <typename Border>
LayerRow border_row(std::string_view type, Layer (*make)(const Border&)) {
  const std::string option = type.substr(0, 4) == "Zero" ? "padding" : "cropping";
  const auto tell = [option](const Border& border) { return LayerConfig{{option, sides_of(border)}}; };
  return row_of<Border>(type, tell, [type, option, make](const LayerConfig& config) {
    Sides sides;
    Given(type, config).take(option, sides).end();
    Border border = 0;
    const std::size_t wanted = sides_of(border).size();
    if (sides.size() != wanted) {
      fail<InvalidArgument>("[layers] ", type, ": ", option, " has ", sides.size(), " numbers, wanted ", wanted);
    }
    if constexpr (std::is_same_v<Border, Border1>) border = {sides[0], sides[1]};
    if constexpr (std::is_same_v<Border, Border2>) border = {sides[0], sides[1], sides[2], sides[3]};
    if constexpr (std::is_same_v<Border, Border3>) {
      border = {{sides[0], sides[1]}, {sides[2], sides[3]}, {sides[4], sides[5]}};
    }
    return make(border);
  });
}

void extend_convolutions() {
  extend(layer_row<DepthwiseConv2DOptions>("DepthwiseConv2D", DepthwiseConv2D));
  extend(layer_row<SeparableConv2DOptions>("SeparableConv2D", SeparableConv2D));
  extend(layer_row<Conv1DTransposeOptions>("Conv1DTranspose", Conv1DTranspose));
  extend(layer_row<Conv2DTransposeOptions>("Conv2DTranspose", Conv2DTranspose));
  extend(layer_row<Conv3DTransposeOptions>("Conv3DTranspose", Conv3DTranspose));
  extend(layer_row<Conv1DOptions>("Conv1D", Conv1D));
  extend(layer_row<Conv3DOptions>("Conv3D", Conv3D));
  extend(layer_row<Pooling1DOptions>("MaxPooling1D", MaxPooling1D));
  extend(layer_row<Pooling1DOptions>("AveragePooling1D", AveragePooling1D));
  extend(layer_row<GlobalPooling1DOptions>("GlobalMaxPooling1D", GlobalMaxPooling1D));
  extend(layer_row<GlobalPooling1DOptions>("GlobalAveragePooling1D", GlobalAveragePooling1D));
  extend(layer_row<AdaptivePooling1DOptions>("AdaptiveMaxPooling1D", AdaptiveMaxPooling1D));
  extend(layer_row<AdaptivePooling1DOptions>("AdaptiveAveragePooling1D", AdaptiveAveragePooling1D));
  extend(layer_row<AdaptivePooling2DOptions>("AdaptiveMaxPooling2D", AdaptiveMaxPooling2D));
  extend(layer_row<AdaptivePooling2DOptions>("AdaptiveAveragePooling2D", AdaptiveAveragePooling2D));
  extend(layer_row<AdaptivePooling3DOptions>("AdaptiveMaxPooling3D", AdaptiveMaxPooling3D));
  extend(layer_row<AdaptivePooling3DOptions>("AdaptiveAveragePooling3D", AdaptiveAveragePooling3D));
  extend(layer_row<Pooling3DOptions>("MaxPooling3D", MaxPooling3D));
  extend(layer_row<Pooling3DOptions>("AveragePooling3D", AveragePooling3D));
  extend(layer_row<GlobalPooling3DOptions>("GlobalMaxPooling3D", GlobalMaxPooling3D));
  extend(layer_row<GlobalPooling3DOptions>("GlobalAveragePooling3D", GlobalAveragePooling3D));
  extend(layer_row<UpSampling2DOptions>("UpSampling2D", UpSampling2D));
  extend(value_row<int64_t>("UpSampling1D", "size", UpSampling1D));
  extend(value_row<Size3>("UpSampling3D", "size", UpSampling3D));
  extend(border_row("ZeroPadding1D", ZeroPadding1D));
  extend(border_row("ZeroPadding2D", ZeroPadding2D));
  extend(border_row("ZeroPadding3D", ZeroPadding3D));
  extend(border_row("Cropping1D", Cropping1D));
  extend(border_row("Cropping2D", Cropping2D));
  extend(border_row("Cropping3D", Cropping3D));
}

void extend_layers_around_others() {
  const auto parts = [](const ChannelsLastParts& given) {
    return LayerConfig{{"layer", std::vector<Layer>{given.layer}}, {"activation", given.activation}};
  };
  extend(row_of<ChannelsLastParts>("ChannelsLast", parts, [](const LayerConfig& config) {
    Activation activation;
    Given given("ChannelsLast", config);
    const Layer layer = given.layer();
    given.take("activation", activation).end();
    return ChannelsLast(layer, activation);
  }));
  const auto inner = [](const Layer& layer) { return LayerConfig{{"layer", std::vector<Layer>{layer}}}; };
  extend(row_of<Layer>("TimeDistributed", inner, [](const LayerConfig& config) {
    Given given("TimeDistributed", config);
    const Layer layer = given.layer();
    given.end();
    return TimeDistributed(layer);
  }));
}

}  // namespace

void install_layers() {
  extend_convolutions();
  extend_layers_around_others();
  extend(layer_row<LayerNormalizationOptions>("LayerNormalization", LayerNormalization));
  extend(layer_row<RMSNormalizationOptions>("RMSNormalization", RMSNormalization));
  extend(layer_row<GroupNormalizationOptions>("GroupNormalization", GroupNormalization));
  extend(layer_row<UnitNormalizationOptions>("UnitNormalization", UnitNormalization));
  extend(layer_row<ReLUOptions>("ReLU", ReLU));
  extend(layer_row<LeakyReLUOptions>("LeakyReLU", LeakyReLU));
  extend(layer_row<SpatialDropout1DOptions>("SpatialDropout1D", SpatialDropout1D));
  extend(layer_row<SpatialDropoutOptions>("SpatialDropout2D", SpatialDropout2D));
  extend(layer_row<SpatialDropoutOptions>("SpatialDropout3D", SpatialDropout3D));
  extend(layer_row<GaussianNoiseOptions>("GaussianNoise", GaussianNoise));
  extend(layer_row<GaussianDropoutOptions>("GaussianDropout", GaussianDropout));
  extend(layer_row<AlphaDropoutOptions>("AlphaDropout", AlphaDropout));
  extend(value_row<int64_t>("RepeatVector", "n", RepeatVector));
  extend(value_row<double>("Masking", "mask_value", Masking));
  extend(value_row<std::vector<int64_t>>("Permute", "dims", Permute));
  const auto scaling = [](const std::pair<double, double>& given) {
    return LayerConfig{{"scale", given.first}, {"offset", given.second}};
  };
  extend(row_of<std::pair<double, double>>("Rescaling", scaling, [](const LayerConfig& config) {
    double scale = 1.0, offset = 0.0;
    Given("Rescaling", config).take("scale", scale).take("offset", offset).end();
    return Rescaling(scale, offset);
  }));
}

}  // namespace cohort
