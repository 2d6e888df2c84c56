#include <array>

#include "cohort/train/layers.h"
#include "tests/wings/export/train/export_cases.h"

namespace cohort::export_test {

std::vector<ExportCase> activation_cases() {
  constexpr std::array kNames = {"relu",        "relu6",       "leaky_relu",     "elu",       "selu",
                                 "gelu",        "sigmoid",     "hard_sigmoid",   "hard_silu", "hard_tanh",
                                 "hard_shrink", "soft_shrink", "tanh_shrink",    "celu",      "log_sigmoid",
                                 "squareplus",  "sparse_plus", "sparse_sigmoid", "sparsemax", "tanh",
                                 "softmax",     "log_softmax", "softplus",       "softsign",  "silu",
                                 "mish",        "exponential"};
  std::vector<ExportCase> cases;
  for (const char* const name : kNames) {
    cases.push_back(layers_case(std::string("activation_") + name, {Dense(6), Layer(Activation::parse(name))}, {5}));
  }
  return cases;
}

std::vector<ExportCase> layer_cases() {
  const Padding same = Padding::kSame;
  return {
      layers_case("mlp", {Flatten(), Dense(16, "relu"), Dropout(0.5), Dense(4, "softmax")}, {6, 5}),
      layers_case("rows", {Rescaling(0.5, 1.0), Dense(8, "tanh"), Permute({2, 1}), Reshape({4, -1}), Dense(3)}, {4, 6}),
      layers_case("images",
                  {Conv2D({.filters = 6, .kernel_size = 3, .padding = same, .activation = "relu"}), MaxPooling2D(),
                   Conv2D({.filters = 8, .kernel_size = {3, 2}, .strides = 2, .padding = same, .use_bias = false}),
                   BatchNormalization(), Activation("silu"), GlobalAveragePooling2D(), Dense(3)},
                  {3, 15, 16}),
      layers_case("images_2",
                  {ZeroPadding2D({1, 2}), DepthwiseConv2D({.kernel_size = 3, .depth_multiplier = 2}),
                   AveragePooling2D({.pool_size = 3, .strides = 2, .padding = same}),
                   SeparableConv2D({.filters = 5, .kernel_size = 3, .padding = same}), Cropping2D({1, 0}),
                   UpSampling2D({.size = 2}), MaxPooling2D({.pool_size = 3, .strides = 2, .padding = same}),
                   GlobalMaxPooling2D()},
                  {2, 12, 13}),
      layers_case("images_3",
                  {Conv2DTranspose({.filters = 4, .kernel_size = 3, .strides = 2, .padding = same}),
                   GroupNormalization({.groups = 2}),
                   UpSampling2D({.size = 2, .interpolation = UpSampling2DOptions::Interpolation::kBilinear}),
                   Conv2D({.filters = 2, .kernel_size = 3, .dilation_rate = 2}), Flatten(), Dense(3)},
                  {3, 5, 6}),
      layers_case("volumes", {Conv3D({.filters = 3, .kernel_size = 2, .activation = "gelu"}), Flatten(), Dense(2)},
                  {2, 4, 5, 6}),
      layers_case("norms", {LayerNormalization(), Dense(6), RMSNormalization(), Dense(4), BatchNormalization()},
                  {7, 6}),
      layers_case("wrapped", {Lambda([](const torch::Tensor& x) { return x.abs().sqrt() + 1; }), Dense(4)}, {5}),
  };
}

std::vector<ExportCase> sequence_cases() {
  const auto words = [](bool masks) { return Embedding({.input_dim = 9, .output_dim = 6, .mask_zero = masks}); };
  return {
      indices_case("lstm", {words(false), LSTM(5), Dense(2)}, {7}, 9),
      indices_case("lstm_sequences", {words(false), LSTM({.units = 5, .return_sequences = true}), GlobalMaxPooling1D()},
                   {7}, 9),
      indices_case("lstm_masked", {words(true), LSTM(5), Dense(2)}, {7}, 9),
      indices_case("gru", {words(false), GRU({.units = 5, .return_sequences = true}), GRU(4)}, {7}, 9),
      indices_case("gru_masked", {words(true), GRU({.units = 5, .return_sequences = true}), GlobalAveragePooling1D()},
                   {7}, 9),
      indices_case("bidirectional",
                   {words(false), Bidirectional(LSTM({.units = 4, .return_sequences = true})), Bidirectional(GRU(3))},
                   {7}, 9),
      indices_case("attention",
                   {words(false), MultiHeadAttention({.num_heads = 2, .key_dim = 3}), LayerNormalization(),
                    MultiHeadAttention({.num_heads = 3, .key_dim = 2, .use_causal_mask = true}), Dense(4)},
                   {7}, 9),
      indices_case("attention_masked", {words(true), MultiHeadAttention({.num_heads = 2, .key_dim = 3}), Dense(4)}, {7},
                   9),
      layers_case("masking", {Masking(), LSTM({.units = 3, .return_sequences = true}), TimeDistributed(Dense(2))},
                  {5, 4}),
      layers_case("steps",
                  {Conv1D({.filters = 5, .kernel_size = 3, .padding = Padding::kCausal}), MaxPooling1D(),
                   Conv1D({.filters = 4, .kernel_size = 2, .strides = 2, .padding = Padding::kSame}),
                   AveragePooling1D({.pool_size = 2}), Flatten(), Dense(2)},
                  {3, 12}),
  };
}

}  // namespace cohort::export_test
