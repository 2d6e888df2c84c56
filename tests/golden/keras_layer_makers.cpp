#include "tests/golden/keras_layer_makers.h"

#include <ATen/Functions.h>

#include <functional>
#include <map>

#include "cohort/train/layers.h"

namespace cohort::testing {

namespace {

using nlohmann::json;

std::vector<int64_t> numbers(const json& options, const char* key) {
  const json& value = options.at(key);
  return value.is_array() ? value.get<std::vector<int64_t>>() : std::vector<int64_t>{value.get<int64_t>()};
}

Size2 size2(const json& options, const char* key) {
  const std::vector<int64_t> list = numbers(options, key);
  return {list.at(0), list.at(1)};
}

Size3 size3(const json& options, const char* key) {
  const std::vector<int64_t> list = numbers(options, key);
  return {list.at(0), list.at(1), list.at(2)};
}

Padding padding_of(const json& options) {
  return options.at("padding") == "same" ? Padding::kSame : Padding::kValid;
}

Activation activation_of(const json& options, const char* key = "activation") {
  return Activation::parse(options.at(key).get<std::string>());
}

Border1 border1(const json& pair) {
  return {pair.at(0), pair.at(1)};
}

Layer cell_of(const json& cell) {
  const std::string name = cell.at("class_name");
  const json& options = cell.at("config");
  if (name == "StackedRNNCells") {
    std::vector<Layer> cells;
    for (const json& each : options.at("cells")) cells.push_back(cell_of(each));
    return StackedRNNCells(std::move(cells));
  }
  if (name == "GRUCell") {
    return GRUCell({.units = options.at("units"),
                    .activation = activation_of(options),
                    .recurrent_activation = activation_of(options, "recurrent_activation"),
                    .use_bias = options.at("use_bias"),
                    .reset_after = options.at("reset_after")});
  }
  return LSTMCell({.units = options.at("units"),
                   .activation = activation_of(options),
                   .recurrent_activation = activation_of(options, "recurrent_activation"),
                   .use_bias = options.at("use_bias"),
                   .unit_forget_bias = options.at("unit_forget_bias")});
}

template <typename Options>
Options with_sequences(Options made, const json& options) {
  made.return_sequences = options.at("return_sequences");
  made.return_state = options.at("return_state");
  made.go_backwards = options.at("go_backwards");
  made.zero_output_for_mask = options.at("zero_output_for_mask");
  return made;
}

Layer conv_lstm(const json& options) {
  const ConvLSTM2DOptions made{.filters = options.at("filters"),
                               .kernel_size = size2(options, "kernel_size"),
                               .strides = size2(options, "strides"),
                               .padding = padding_of(options),
                               .dilation_rate = size2(options, "dilation_rate"),
                               .activation = activation_of(options),
                               .recurrent_activation = activation_of(options, "recurrent_activation"),
                               .use_bias = options.at("use_bias"),
                               .unit_forget_bias = options.at("unit_forget_bias")};
  return ConvLSTM2D(with_sequences(made, options));
}

Layer conv1d_transpose(const json& options) {
  Conv1DTransposeOptions made{.filters = options.at("filters"),
                              .kernel_size = numbers(options, "kernel_size")[0],
                              .strides = numbers(options, "strides")[0],
                              .padding = padding_of(options),
                              .dilation_rate = numbers(options, "dilation_rate")[0],
                              .activation = activation_of(options),
                              .use_bias = options.at("use_bias")};
  if (!options.at("output_padding").is_null()) made.output_padding = numbers(options, "output_padding")[0];
  return Conv1DTranspose(made);
}

Layer conv3d(const json& options) {
  return Conv3D({.filters = options.at("filters"),
                 .kernel_size = size3(options, "kernel_size"),
                 .strides = size3(options, "strides"),
                 .padding = padding_of(options),
                 .dilation_rate = size3(options, "dilation_rate"),
                 .groups = options.at("groups"),
                 .activation = activation_of(options),
                 .use_bias = options.at("use_bias")});
}

Layer attention(const json& golden) {
  const json& options = golden.at("options");
  const bool causal = golden.contains("call") && golden.at("call").value("use_causal_mask", false);
  if (golden.at("layer") == "AdditiveAttention") {
    return AdditiveAttention(
        {.use_scale = options.at("use_scale"), .dropout = options.at("dropout"), .use_causal_mask = causal});
  }
  using Mode = DotProductAttentionOptions::ScoreMode;
  return DotProductAttention({.use_scale = options.at("use_scale"),
                              .score_mode = options.at("score_mode") == "dot" ? Mode::kDot : Mode::kConcat,
                              .dropout = options.at("dropout"),
                              .use_causal_mask = causal});
}

Layer up_sampling(const json& options) {
  using Way = UpSampling2DOptions::Interpolation;
  static const std::map<std::string, Way> kWays = {
      {"nearest", Way::kNearest}, {"bilinear", Way::kBilinear}, {"bicubic", Way::kBicubic}};
  return UpSampling2D({.size = size2(options, "size"), .interpolation = kWays.at(options.at("interpolation"))});
}

RandomRange range_of(const json& value) {
  if (!value.is_array()) return value.get<double>();
  return {value.at(0).get<double>(), value.at(1).get<double>()};
}

template <typename Options>
Options with_fill(Options made, const json& options) {
  static const std::map<std::string, FillMode> kModes = {{"constant", FillMode::kConstant},
                                                         {"nearest", FillMode::kNearest},
                                                         {"reflect", FillMode::kReflect},
                                                         {"wrap", FillMode::kWrap}};
  made.fill_mode = kModes.at(options.at("fill_mode"));
  made.fill_value = options.at("fill_value");
  const bool bilinear = options.at("interpolation") == "bilinear";
  made.interpolation = bilinear ? WarpInterpolation::kBilinear : WarpInterpolation::kNearest;
  return made;
}

Layer random_zoom(const json& options) {
  RandomZoomOptions made{.height_factor = range_of(options.at("height_factor"))};
  if (!options.at("width_factor").is_null()) made.width_factor = range_of(options.at("width_factor"));
  return RandomZoom(with_fill(made, options));
}

Layer random_translation(const json& options) {
  const RandomTranslationOptions made{.height_factor = range_of(options.at("height_factor")),
                                      .width_factor = range_of(options.at("width_factor"))};
  return RandomTranslation(with_fill(made, options));
}

Layer simple_rnn(const json& options) {
  const SimpleRNNOptions made{
      .units = options.at("units"), .activation = activation_of(options), .use_bias = options.at("use_bias")};
  return SimpleRNN(with_sequences(made, options));
}

Pooling3DOptions pooling3d(const json& options) {
  return {
      .pool_size = size3(options, "pool_size"), .strides = size3(options, "strides"), .padding = padding_of(options)};
}

Border2 border2(const json& pairs) {
  return {pairs.at(0).at(0), pairs.at(0).at(1), pairs.at(1).at(0), pairs.at(1).at(1)};
}

using Maker = std::function<Layer(const json& options)>;

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> kMakers = {
      {"SimpleRNN", simple_rnn},
      {"RNN", [](const json& o) { return RNN(cell_of(o.at("cell")), with_sequences(RNNOptions(), o)); }},
      {"ConvLSTM2D", conv_lstm},
      {"RepeatVector", [](const json& o) { return RepeatVector(o.at("n").get<int64_t>()); }},
      {"GaussianNoise", [](const json& o) { return GaussianNoise(o.at("stddev").get<double>()); }},
      {"Cropping2D", [](const json& o) { return Cropping2D(border2(o.at("cropping"))); }},
      {"ZeroPadding3D",
       [](const json& o) {
         const json& sides = o.at("padding");
         return ZeroPadding3D({border1(sides.at(0)), border1(sides.at(1)), border1(sides.at(2))});
       }},
      {"UpSampling2D", up_sampling},
      {"Conv1DTranspose", conv1d_transpose},
      {"Conv3D", conv3d},
      {"MaxPooling3D", [](const json& o) { return MaxPooling3D(pooling3d(o)); }},
      {"AveragePooling3D", [](const json& o) { return AveragePooling3D(pooling3d(o)); }},
      {"GlobalMaxPooling1D", [](const json& o) { return GlobalMaxPooling1D({.keepdims = o.at("keepdims")}); }},
      {"GlobalMaxPooling3D", [](const json& o) { return GlobalMaxPooling3D({.keepdims = o.at("keepdims")}); }},
      {"UnitNormalization", [](const json& o) { return UnitNormalization({.axis = numbers(o, "axis")}); }},
      {"RandomRotation",
       [](const json& o) {
         return RandomRotation(with_fill(RandomRotationOptions{.factor = range_of(o.at("factor"))}, o));
       }},
      {"RandomZoom", random_zoom},
      {"RandomTranslation", random_translation},
  };
  return kMakers;
}

// [inputs, outputs], or [places..., inputs, outputs].
torch::Tensor kernel_of(const torch::Tensor& keras) {
  return keras.movedim({-1, -2}, {0, 1});
}

// Keras' gates are update, reset, new; here they are reset, update, new.
torch::Tensor own_gates(const torch::Tensor& keras) {
  const std::vector<torch::Tensor> gates = keras.chunk(3, -1);
  return at::cat({gates[1], gates[0], gates[2]}, -1);
}

// Returns the name of the module that a weight of a cell belongs to: "stacked_rnn_cells/gru_cell/kernel" of the first
// one is "cell.cell_0."
std::string cell_prefix(const json& golden, const std::string& path) {
  const bool stacked = path.rfind("stacked", 0) == 0;
  if (!stacked) return "cell.";
  const json& cells = golden.at("options").at("cell").at("config").at("cells");
  const bool first_is_gru = cells.at(0).at("class_name") == "GRUCell";
  const bool gru = path.find("gru_cell") != std::string::npos;
  return gru == first_is_gru ? "cell.cell_0." : "cell.cell_1.";
}

}  // namespace

std::optional<Layer> keras_layer(const json& golden) {
  const std::string name = golden.at("layer");
  if (name == "Attention" || name == "AdditiveAttention") return attention(golden);
  const auto maker = makers().find(name);
  if (maker == makers().end()) return std::nullopt;
  return maker->second(golden.at("options"));
}

torch::Tensor from_keras_layout(const std::string& layer, const torch::Tensor& keras) {
  const auto within = [&](const char* part) { return layer.find(part) != std::string::npos; };
  if (layer == "ConvLSTM2D") return keras.movedim(-1, keras.dim() - 3);
  if (within("2D") || within("3D") || within("Random") || layer == "Conv1DTranspose") return keras.movedim(-1, 1);
  return keras;
}

std::vector<std::pair<std::string, torch::Tensor>> keras_parameters(const json& golden, std::size_t weight,
                                                                    const torch::Tensor& value) {
  const std::string layer = golden.at("layer");
  const std::string path = golden.at("weights").at(weight).at("name");
  const std::string name = path.substr(path.rfind('/') + 1);
  if (layer == "Attention" || layer == "AdditiveAttention") return {{name, value}};
  if (path.find("cell") == std::string::npos) {
    if (name == "kernel") return {{"weight", kernel_of(value)}};
    return {{name, value}};
  }
  const std::string prefix = cell_prefix(golden, path);
  const bool gru = path.find("gru_cell") != std::string::npos;
  const torch::Tensor own = gru ? own_gates(value) : value;
  if (name == "kernel") return {{prefix + "weight_ih", kernel_of(own)}};
  if (name == "recurrent_kernel") return {{prefix + "weight_hh", kernel_of(own)}};
  if (gru) return {{prefix + "bias_ih", own[0]}, {prefix + "bias_hh", own[1]}};
  return {{prefix + "bias", own}};
}

}  // namespace cohort::testing
