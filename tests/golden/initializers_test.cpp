// These tests are about how far initial values scatter and how large they become (initializers.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"
#include "tests/golden/keras_weights.h"

namespace cohort::testing::initializers_test {
namespace {

using nlohmann::json;

constexpr int64_t kSamples = 200'000;

// Those whose options say all; of the others, whose fans do, there are none.
Initializer initializer_without_fans(const std::string& name, const json& options) {
  if (options.empty()) return Initializer::parse(name);
  const NormalOptions normal{.mean = options.value("mean", 0.0), .stddev = options.value("stddev", 0.05)};
  if (name == "RandomNormal") return Initializer::random_normal(normal);
  if (name == "TruncatedNormal") return Initializer::truncated_normal(normal);
  if (name == "RandomUniform") {
    return Initializer::random_uniform(options.value("minval", -0.05), options.value("maxval", 0.05));
  }
  if (name == "Constant") return Initializer::constant(options.value("value", 0.0));
  if (name == "Orthogonal") return Initializer::orthogonal(options.value("gain", 1.0));
  throw std::invalid_argument("there are no options " + options.dump() + " of " + name);
}

Initializer initializer_of(const json& golden) {
  const std::string name = golden.at("initializer");
  if (name != "VarianceScaling") return initializer_without_fans(name, golden.at("options"));
  using Mode = VarianceScalingOptions::Mode;
  using Distribution = VarianceScalingOptions::Distribution;
  const std::map<std::string, Mode> modes = {
      {"fan_in", Mode::kFanIn}, {"fan_out", Mode::kFanOut}, {"fan_avg", Mode::kFanAvg}};
  const std::map<std::string, Distribution> distributions = {{"truncated_normal", Distribution::kTruncatedNormal},
                                                             {"untruncated_normal", Distribution::kUntruncatedNormal},
                                                             {"uniform", Distribution::kUniform}};
  const json& options = golden.at("options");
  return Initializer::variance_scaling({.scale = options.at("scale"),
                                        .mode = modes.at(options.at("mode")),
                                        .distribution = distributions.at(options.at("distribution"))});
}

// Compares the deviation and the largest magnitude, within 2 %.
std::string compare(const std::string& what, const torch::Tensor& samples, const json& golden) {
  const double deviation = samples.numel() < 2 ? 0.0 : samples.std().item<double>();
  const double largest = samples.abs().max().item<double>();
  return difference(what + "'s deviation", deviation, golden_number(golden.at("std")), {.relative = 0.02}) +
         difference(what + "'s largest", largest, golden_number(golden.at("abs_max")), {.relative = 0.02});
}

// The largest of many unbounded normal numbers is a number of chance: it lies in a range.
std::string compare_unbounded(const std::string& what, const torch::Tensor& samples, const json& golden) {
  const double deviation = samples.std().item<double>();
  const double largest = samples.abs().max().item<double>() / deviation;
  const double wanted = golden_number(golden.at("abs_max")) / golden_number(golden.at("std"));
  return difference(what + "'s deviation", deviation, golden_number(golden.at("std")), {.relative = 0.02}) +
         difference(what + "'s largest, in deviations", largest, wanted, {.absolute = 1.0});
}

std::string check_initializer(const json& golden) {
  const std::vector<int64_t> shape = golden.at("shape");
  const Fans fans = Fans::of_kernel(shape);
  const Initializer initializer = initializer_of(golden);
  std::vector<torch::Tensor> samples;
  for (int64_t count = 0; count < kSamples; count += samples.back().numel()) {
    const torch::Tensor parameter = torch::empty(shape, torch::kDouble);
    initializer.fill(parameter, fans);
    samples.push_back(parameter.view({-1}));
  }
  const std::string name = golden.at("initializer");
  const bool unbounded =
      name == "RandomNormal" || golden.at("options").value("distribution", "") == "untruncated_normal";
  return (unbounded ? compare_unbounded : compare)(name, torch::cat(samples), golden);
}

// A layer whose kernel has the shape that Keras gives.
Layer layer_of(const std::string& name, const json& weights) {
  if (name == "Dense") return Dense(weights.at("kernel").at("shape").at(1).get<int64_t>());
  if (name == "Embedding") {
    const json& shape = weights.at("embeddings").at("shape");
    return Embedding(shape.at(0).get<int64_t>(), shape.at(1).get<int64_t>());
  }
  if (name == "DepthwiseConv2D") {
    const json& shape = weights.at("kernel").at("shape");
    return DepthwiseConv2D({.kernel_size = {shape.at(0), shape.at(1)}, .depth_multiplier = shape.at(3)});
  }
  throw std::invalid_argument("there is no layer " + name);
}

std::string check_layer(const json& golden) {
  const std::string name = golden.at("layer");
  const json& weights = golden.at("weights");
  const Layer layer = layer_of(name, weights);
  BuildContext context{.name = "it", .input = {4}, .dtype = torch::kDouble, .input_dtype = torch::kDouble};
  if (name == "Dense") context.input = {weights.at("kernel").at("shape").at(0)};
  if (name == "DepthwiseConv2D") context.input = {weights.at("kernel").at("shape").at(2), 8, 8};
  std::map<std::string, std::vector<torch::Tensor>> samples;
  for (int64_t count = 0; count < kSamples;) {
    for (const auto& item : layer.kind().build(context)->named_parameters()) {
      samples[item.key()].push_back(item.value().detach().reshape({-1}));
      count += item.value().numel();
    }
  }
  std::string apart;
  for (const auto& [weight, statistics] : weights.items()) {
    apart += compare(name + "'s " + weight, torch::cat(samples.at(weight == "bias" ? "bias" : "weight")), statistics);
  }
  return apart;
}

// The file does not say the sizes: the kernels' bounds are sqrt(6 / (inputs + outputs)), and these sizes have those
// sums.
Layer large_layer_of(const std::string& name) {
  if (name == "LSTM") return LSTM(24);
  if (name == "MultiHeadAttention") return MultiHeadAttention({.num_heads = 4, .key_dim = 12});
  if (name == "Conv2D") return Conv2D(20, 3);
  if (name == "Conv2D groups 2") return Conv2D({.filters = 20, .kernel_size = 3, .groups = 2});
  if (name == "Conv3D") return Conv3D({.filters = 10, .kernel_size = 3});
  throw std::invalid_argument("there is no layer " + name);
}

Shape large_input_of(const std::string& name) {
  if (name == "LSTM") return {5, 20};
  if (name == "MultiHeadAttention") return {5, 24};
  return name == "Conv3D" ? Shape{8, 4, 4, 4} : Shape{10, 8, 8};
}

std::string check_initial_weights(const json& golden) {
  const std::string name = golden.at("layer");
  const auto layer_name = name.substr(0, name.find(' '));
  std::map<std::string, std::vector<torch::Tensor>> samples;
  for (int64_t count = 0; count < kSamples;) {
    const BuildContext context{.name = "it", .input = large_input_of(name), .dtype = torch::kDouble};
    for (const auto& item : large_layer_of(name).kind().build(context)->named_parameters()) {
      samples[item.key()].push_back(item.value().detach().reshape({-1}));
      count += item.value().numel();
    }
  }
  std::string apart;
  for (const auto& [weight, statistics] : golden.at("weights").items()) {
    // A weight of any shape of Keras' rank finds its name here.
    const bool cube = layer_name == "MultiHeadAttention" && weight.ends_with("kernel");
    const torch::Tensor shape = torch::zeros(cube ? std::vector<int64_t>{1, 1, 1} : std::vector<int64_t>{3, 3});
    const torch::Tensor all = torch::cat(samples.at(own_weights(layer_name, weight, shape).front().first));
    // The largest of the recurrent kernel's, which are orthogonal, is a number of chance.
    const bool bounded = weight != "lstm_cell/recurrent_kernel";
    apart += bounded ? compare(name + "'s " + weight, all, statistics)
                     : difference(name + "'s " + weight, all.std().item<double>(), golden_number(statistics.at("std")),
                                  {.relative = 0.03});
  }
  return apart;
}

TEST(GoldenInitializers, LayersThatWereJustBuilt) {
  torch::manual_seed(12);
  check_golden("initial_weights.json", check_initial_weights);
}

TEST(GoldenInitializers, ScatterAsKeras) {
  torch::manual_seed(11);
  check_golden("initializers.json", [](const json& golden) {
    return golden.contains("layer") ? check_layer(golden) : check_initializer(golden);
  });
}

}  // namespace
}  // namespace cohort::testing::initializers_test
