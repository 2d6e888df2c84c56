// These tests are about how far initial values scatter and how large they become (initializers.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>

#include "cohort/train/layers.h"
#include "tests/golden/golden.h"

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

TEST(GoldenInitializers, ScatterAsKeras) {
  torch::manual_seed(11);
  check_golden("initializers.json", [](const json& golden) {
    return golden.contains("layer") ? check_layer(golden) : check_initializer(golden);
  });
}

}  // namespace
}  // namespace cohort::testing::initializers_test
