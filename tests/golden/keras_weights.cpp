#include "tests/golden/keras_weights.h"

#include <ATen/Functions.h>

#include <map>

namespace cohort::testing {

namespace {

using Named = std::vector<std::pair<std::string, torch::Tensor>>;

// Keras' gates are update, reset, new; here they are reset, update, new.
torch::Tensor gru_gates(const torch::Tensor& keras) {
  const std::vector<torch::Tensor> gates = keras.chunk(3, -1);
  return at::cat({gates[1], gates[0], gates[2]}, -1);
}

Named of_cell(const std::string& prefix, bool gru, const std::string& name, const torch::Tensor& keras) {
  const torch::Tensor w = gru ? gru_gates(keras) : keras;
  if (name == "kernel") return {{prefix + "weight_ih_l0", w.t()}};
  if (name == "recurrent_kernel") return {{prefix + "weight_hh_l0", w.t()}};
  if (gru) return {{prefix + "bias_ih_l0", w[0]}, {prefix + "bias_hh_l0", w[1]}};
  return {{prefix + "bias_ih_l0", w}};
}

Named of_attention(const std::string& path, const torch::Tensor& keras) {
  const std::string part = path.substr(0, path.find('/'));
  const bool output = part == "attention_output";
  const std::string name = output ? "output" : part;
  if (path.ends_with("bias")) return {{name + ".bias", keras.flatten()}};
  return {{name + ".weight", (output ? keras.flatten(0, 1) : keras.flatten(1)).t()}};
}

// [inputs, outputs], or [size, ..., inputs, outputs].
torch::Tensor kernel(const torch::Tensor& keras) {
  if (keras.dim() == 2) return keras.t();
  return keras.movedim({-1, -2}, {0, 1});
}
// [height, width, channels, multiplier].
torch::Tensor depthwise_kernel(const torch::Tensor& keras) {
  return keras.permute({2, 3, 0, 1}).reshape({keras.size(2) * keras.size(3), 1, keras.size(0), keras.size(1)});
}

}  // namespace

Named own_weights(const std::string& layer, const std::string& path, const torch::Tensor& keras) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto within = [&](const char* part) { return path.find(part) != std::string::npos; };
  std::string prefix = layer == "TimeDistributed" ? "layer." : "";
  if (within("forward_")) prefix = "forward.";
  if (within("backward_")) prefix = "backward.";
  if (within("lstm_cell") || within("gru_cell")) return of_cell(prefix, within("gru_cell"), name, keras);
  if (layer == "MultiHeadAttention") return of_attention(path, keras);
  if (name == "depthwise_kernel") return {{"depthwise_weight", depthwise_kernel(keras)}};
  if (name == "pointwise_kernel") return {{"pointwise_weight", kernel(keras)}};
  if (name == "kernel") {
    return {{prefix + "weight", layer == "DepthwiseConv2D" ? depthwise_kernel(keras) : kernel(keras)}};
  }
  static const std::map<std::string, std::string> kNames = {{"gamma", "weight"},
                                                            {"scale", "weight"},
                                                            {"beta", "bias"},
                                                            {"bias", "bias"},
                                                            {"embeddings", "weight"},
                                                            {"moving_mean", "running_mean"},
                                                            {"moving_variance", "running_var"}};
  return {{prefix + kNames.at(name), keras}};
}

}  // namespace cohort::testing
