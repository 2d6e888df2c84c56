// The table of classes: what their options are called here, and where their weights are.
#include <algorithm>

#include "wings/keras/train/keras_class.h"
#include "wings/keras/train/option_changes.h"

namespace cohort {

namespace {

using enum WeightLayout;

double sizes_of(const LayerConfig& config, std::string_view name) {
  double product = 1.0;
  for (const auto& [given, value] : config) {
    if (given != name) continue;
    if (const auto* const list = std::get_if<std::vector<int64_t>>(&value)) {
      for (const int64_t size : *list) product *= static_cast<double>(size);
    } else {
      product *= whole_option(config, name);
    }
  }
  return product;
}

double last(const Shape& input) {
  return input.empty() ? 0.0 : static_cast<double>(input.back());
}

// Returns the channels, which come first here.
double channels(const Shape& input) {
  return input.empty() ? 0.0 : static_cast<double>(input.front());
}

double dense_elements(const LayerConfig& config, const Shape& input) {
  return last(input) * whole_option(config, "units");
}
double conv_elements(const LayerConfig& config, const Shape& input) {
  return sizes_of(config, "kernel_size") * channels(input) / whole_option(config, "groups") *
         whole_option(config, "filters");
}
double depthwise_elements(const LayerConfig& config, const Shape& input) {
  return sizes_of(config, "kernel_size") * channels(input) * whole_option(config, "depth_multiplier");
}
double separable_elements(const LayerConfig& config, const Shape& input) {
  return depthwise_elements(config, input) +
         channels(input) * whole_option(config, "depth_multiplier") * whole_option(config, "filters");
}
double embedding_elements(const LayerConfig& config, const Shape& /*input*/) {
  return whole_option(config, "input_dim") * whole_option(config, "output_dim");
}
double recurrent_elements(const LayerConfig& config, const Shape& input) {
  const double units = whole_option(config, "units");
  return 3.0 * units * (last(input) + units);
}
double batch_norm_elements(const LayerConfig& config, const Shape& input) {
  const auto axis = static_cast<int64_t>(whole_option(config, "axis"));
  const auto rank = static_cast<int64_t>(input.size()) + 1;
  const int64_t dim = axis < 0 ? axis + rank : axis;
  return dim < 1 || dim >= rank ? 0.0 : static_cast<double>(input[static_cast<std::size_t>(dim - 1)]);
}
double norm_elements(const LayerConfig& config, const Shape& input) {
  if (whole_option(config, "center") == 0 && whole_option(config, "scale") == 0) return 0.0;
  double product = 1.0;
  const auto dimensions = static_cast<std::size_t>(whole_option(config, "dimensions"));
  for (std::size_t i = 0; i < std::min(dimensions, input.size()); ++i) {
    product *= static_cast<double>(input[input.size() - 1 - i]);
  }
  return product;
}

std::vector<FileWeight> kernel_and_bias(WeightLayout layout) {
  return {{"", "weight", layout}, {"", "bias"}};
}

constexpr std::pair<const char*, const char*> kNoQuantization = {"quantization_config", "null"};

std::vector<KerasClass> plain_classes() {
  return {
      {.name = "Dense",
       .type = "Dense",
       .fixed = {kNoQuantization},
       .weights = kernel_and_bias(kMatrix),
       .elements = dense_elements},
      {.name = "Embedding",
       .type = "Embedding",
       .fixed = {kNoQuantization},
       .weights = {{"", "weight"}},
       .elements = embedding_elements},
      {.name = "Flatten", .type = "Flatten", .fixed = {{"data_format", "\"channels_last\""}}, .write = write_flatten},
      {.name = "Reshape", .type = "Reshape"},
      {.name = "Permute", .type = "Permute"},
      {.name = "Rescaling", .type = "Rescaling"},
      {.name = "Activation", .type = "Activation"},
      {.name = "Softmax", .type = "Activation", .fixed = {{"axis", "-1"}}, .read = read_softmax},
      {.name = "ELU", .type = "Activation", .fixed = {{"alpha", "1.0"}}, .read = read_elu},
      {.name = "Identity", .type = "Activation", .read = read_identity},
      {.name = "ReLU", .type = "ReLU"},
      {.name = "LeakyReLU", .type = "LeakyReLU"},
      {.name = "Masking", .type = "Masking"},
      {.name = "BatchNormalization",
       .type = "BatchNormalization",
       .fixed = {{"beta_regularizer", "null"},
                 {"gamma_regularizer", "null"},
                 {"renorm", "false"},
                 {"renorm_clipping", "null"}},
       .free = {"renorm_momentum"},
       .read = read_norm_initializers,
       .write = write_batch_norm,
       .weights = {{"", "weight"}, {"", "bias"}, {"", "running_mean"}, {"", "running_var"}},
       .elements = batch_norm_elements},
      {.name = "LayerNormalization",
       .type = "LayerNormalization",
       .fixed = {{"beta_regularizer", "null"}, {"gamma_regularizer", "null"}, {"rms_scaling", "false"}},
       .read = read_layer_norm,
       .write = write_layer_norm,
       .weights = kernel_and_bias(kSame),
       .elements = norm_elements},
      {.name = "UnitNormalization", .type = "UnitNormalization", .read = read_axes, .write = write_axes},
      {.name = "RMSNormalization",
       .type = "RMSNormalization",
       .read = read_layer_norm,
       .write = write_layer_norm,
       .weights = {{"", "weight"}},
       .elements = norm_elements},
      {.name = "GroupNormalization",
       .type = "GroupNormalization",
       .has_format = true,
       .fixed = {{"beta_regularizer", "null"}, {"gamma_regularizer", "null"}},
       .read = read_group_norm,
       .write = write_group_norm,
       .weights = kernel_and_bias(kSame),
       .elements = [](const LayerConfig& /*config*/, const Shape& input) { return channels(input); }},
  };
}

std::vector<KerasClass> convolution_classes() {
  std::vector<KerasClass> list;
  for (const char* const name :
       {"Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"}) {
    list.push_back({.name = name,
                    .type = name,
                    .has_format = true,
                    .read = read_lengths,
                    .weights = kernel_and_bias(kKernel),
                    .elements = conv_elements});
  }
  list.push_back({.name = "DepthwiseConv2D",
                  .type = "DepthwiseConv2D",
                  .has_format = true,
                  .weights = kernel_and_bias(kDepthwise),
                  .parts = "depth_multiplier",
                  .elements = depthwise_elements});
  list.push_back({.name = "SeparableConv2D",
                  .type = "SeparableConv2D",
                  .has_format = true,
                  .weights = {{"", "depthwise_weight", kDepthwise}, {"", "pointwise_weight", kKernel}, {"", "bias"}},
                  .parts = "depth_multiplier",
                  .elements = separable_elements});
  return list;
}

std::vector<KerasClass> resizing_classes() {
  std::vector<KerasClass> list;
  for (const char* const name : {"MaxPooling2D", "AveragePooling2D", "GlobalMaxPooling2D", "GlobalAveragePooling2D",
                                 "MaxPooling3D", "AveragePooling3D", "GlobalMaxPooling3D", "GlobalAveragePooling3D",
                                 "AdaptiveMaxPooling2D", "AdaptiveAveragePooling2D", "AdaptiveMaxPooling3D",
                                 "AdaptiveAveragePooling3D", "UpSampling2D", "UpSampling3D"}) {
    list.push_back({.name = name, .type = name, .has_format = true});
  }
  for (const char* const name :
       {"MaxPooling1D", "AveragePooling1D", "AdaptiveMaxPooling1D", "AdaptiveAveragePooling1D"}) {
    list.push_back({.name = name, .type = name, .has_format = true, .read = read_lengths});
  }
  for (const char* const name : {"GlobalMaxPooling1D", "GlobalAveragePooling1D"}) {
    list.push_back({.name = name, .type = name, .read = read_channels_first, .write = write_channels_first});
  }
  for (const char* const name : {"ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping2D", "Cropping3D"}) {
    list.push_back({.name = name, .type = name, .has_format = true, .read = read_border, .write = write_border});
  }
  // Sequences of these have their channels last in Keras, without an option that says so.
  list.push_back({.name = "UpSampling1D", .type = "UpSampling1D", .has_format = true, .write = write_last_only});
  list.push_back({.name = "Cropping1D", .type = "Cropping1D", .has_format = true, .write = write_last_only});
  return list;
}

std::vector<KerasClass> noise_classes() {
  std::vector<KerasClass> list = {
      {.name = "Dropout", .type = "Dropout", .fixed = {{"noise_shape", "null"}}, .free = {"seed"}},
      {.name = "AlphaDropout", .type = "AlphaDropout", .fixed = {{"noise_shape", "null"}}, .free = {"seed"}},
      {.name = "GaussianNoise", .type = "GaussianNoise", .free = {"seed"}},
      {.name = "GaussianDropout", .type = "GaussianDropout", .free = {"seed"}},
      {.name = "SpatialDropout1D", .type = "SpatialDropout1D", .free = {"seed"}, .write = write_spatial_dropout},
  };
  for (const char* const name : {"SpatialDropout2D", "SpatialDropout3D"}) {
    list.push_back({.name = name, .type = name, .has_format = true, .free = {"seed"}, .write = write_spatial_dropout});
  }
  return list;
}

std::vector<KerasClass> cell_classes() {
  return {
      {.name = "SimpleRNNCell",
       .type = "SimpleRNNCell",
       .free = {"seed"},
       .weights = {{"", "weight_ih", kMatrix}, {"", "weight_hh", kMatrix}, {"", "bias"}}},
      {.name = "LSTMCell",
       .type = "LSTMCell",
       .free = {"seed"},
       .weights = {{"", "weight_ih", kMatrix}, {"", "weight_hh", kMatrix}, {"", "bias"}},
       .elements = recurrent_elements},
      {.name = "GRUCell",
       .type = "GRUCell",
       .free = {"seed"},
       .weights = {{"", "weight_ih", kGruMatrix},
                   {"", "weight_hh", kGruMatrix},
                   {"", "bias_ih", kGruBiases, "bias_hh"}},
       .elements = recurrent_elements},
      {.name = "StackedRNNCells", .type = "StackedRNNCells"},
  };
}

std::vector<KerasClass> sequence_classes() {
  const std::vector<std::pair<const char*, const char*>> recurrent = {{"activation", "\"tanh\""},
                                                                      {"recurrent_activation", "\"sigmoid\""},
                                                                      {"dropout", "0.0"},
                                                                      {"recurrent_dropout", "0.0"},
                                                                      {"stateful", "false"}};
  std::vector<std::pair<const char*, const char*>> gru = recurrent;
  gru.emplace_back("reset_after", "true");
  return {
      {.name = "LSTM",
       .type = "LSTM",
       .fixed = recurrent,
       .free = {"unroll", "seed"},
       .weights = {{"cell", "weight_ih_l0", kMatrix}, {"cell", "weight_hh_l0", kMatrix}, {"cell", "bias_ih_l0"}},
       .elements = recurrent_elements},
      {.name = "GRU",
       .type = "GRU",
       .fixed = gru,
       .free = {"unroll", "seed"},
       .weights = {{"cell", "weight_ih_l0", kGruMatrix},
                   {"cell", "weight_hh_l0", kGruMatrix},
                   {"cell", "bias_ih_l0", kGruBiases, "bias_hh_l0"}},
       .elements = recurrent_elements},
      {.name = "SimpleRNN",
       .type = "SimpleRNN",
       .fixed = {{"stateful", "false"}},
       .free = {"unroll", "seed"},
       .weights = {{"cell", "cell.weight_ih", kMatrix}, {"cell", "cell.weight_hh", kMatrix}, {"cell", "cell.bias"}},
       .elements = [](const LayerConfig& config,
                      const Shape& input) { return recurrent_elements(config, input) / 3.0; }},
      {.name = "RNN", .type = "RNN", .fixed = {{"stateful", "false"}}, .free = {"unroll"}},
      {.name = "ConvLSTM2D",
       .type = "ConvLSTM2D",
       .fixed = {{"stateful", "false"}},
       .free = {"unroll", "seed"},
       .read = read_channels_first,
       .write = write_channels_first,
       .weights = {{"cell", "cell.weight_ih", kKernel}, {"cell", "cell.weight_hh", kKernel}, {"cell", "cell.bias"}},
       .elements =
           [](const LayerConfig& config, const Shape& input) {
             const bool first = whole_option(config, "channels_first") != 0;
             const double channels = first && input.size() > 1 ? static_cast<double>(input[1]) : last(input);
             return sizes_of(config, "kernel_size") * 4 * whole_option(config, "filters") *
                    std::max(channels, whole_option(config, "filters"));
           }},
      {.name = "RepeatVector", .type = "RepeatVector"},
      {.name = "Bidirectional", .type = "Bidirectional", .read = read_bidirectional, .write = write_bidirectional},
      {.name = "TimeDistributed", .type = "TimeDistributed"},
  };
}

std::vector<KerasClass> merging_classes() {
  std::vector<KerasClass> list = {{.name = "Dot", .type = "Dot", .read = read_dot},
                                  {.name = "Attention",
                                   .type = "DotProductAttention",
                                   .free = {"seed"},
                                   .write = write_attention,
                                   .weights = {{"", "scale"}, {"", "concat_score_weight"}}},
                                  {.name = "AdditiveAttention",
                                   .type = "AdditiveAttention",
                                   .free = {"seed"},
                                   .write = write_attention,
                                   .weights = {{"", "scale"}},
                                   .elements = [](const LayerConfig& config, const Shape& input) {
                                     return whole_option(config, "use_scale") * last(input);
                                   }}};
  list.push_back({.name = "MultiHeadAttention",
                  .type = "MultiHeadAttention",
                  .fixed = {{"use_gate", "false"}, {"sliding_window", "null"}},
                  .free = {"seed"},
                  .read = read_heads,
                  .write = write_heads,
                  .weights = {{"query_dense", "query.weight", kToHeads},
                              {"query_dense", "query.bias", kHeads},
                              {"key_dense", "key.weight", kToHeads},
                              {"key_dense", "key.bias", kHeads},
                              {"value_dense", "value.weight", kToHeads},
                              {"value_dense", "value.bias", kHeads},
                              {"output_dense", "output.weight", kFromHeads},
                              {"output_dense", "output.bias"}},
                  .parts = "num_heads",
                  .elements = [](const LayerConfig& config, const Shape& input) {
                    return last(input) * whole_option(config, "num_heads") * whole_option(config, "key_dim");
                  }});
  for (const char* const name : {"Concatenate", "Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"}) {
    list.push_back({.name = name, .type = name});
  }
  return list;
}

}  // namespace

const std::vector<KerasClass>& keras_classes() {
  static const std::vector<KerasClass> classes = [] {
    std::vector<KerasClass> all = plain_classes();
    for (const auto& more : {convolution_classes(), resizing_classes(), noise_classes(), sequence_classes(),
                             cell_classes(), merging_classes(), preprocessing_classes(), random_image_classes()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return classes;
}

const KerasClass* class_of_type(std::string_view type) {
  for (const KerasClass& each : keras_classes()) {
    if (each.type == type) return &each;
  }
  return nullptr;
}

double whole_option(const LayerConfig& config, std::string_view name, int64_t otherwise) {
  for (const auto& [given, value] : config) {
    if (given != name) continue;
    if (const auto* const number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
    if (const auto* const flag = std::get_if<bool>(&value)) return *flag ? 1.0 : 0.0;
  }
  return static_cast<double>(otherwise);
}

}  // namespace cohort
