// Keras 3's layers that prepare numbers (facts.json): what they learn, and what they make of an input.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <iostream>
#include <map>
#include <optional>

#include "cohort/error.h"
#include "cohort/train/layers/preprocessing.h"
#include "tests/golden/golden.h"

namespace cohort::testing::keras_preprocessing_test {
namespace {

using nlohmann::json;
using torch::Tensor;

bool has_text(const json& value) {
  if (value.is_string()) return true;
  for (const json& each : value) {
    if (value.is_array() && has_text(each)) return true;
  }
  return false;
}

Tensor tensor_of(const json& value) {
  const Tensor numbers = golden_tensor(value);
  return numbers.equal(numbers.round()) && value.dump().find('.') == std::string::npos ? numbers.to(torch::kLong)
                                                                                       : numbers;
}

// Integers above 2^53 are no float64.
Tensor integers_of(const json& value) {
  if (!value.is_array()) return torch::tensor(value.get<int64_t>());
  std::vector<Tensor> list;
  for (const json& each : value) list.push_back(integers_of(each));
  return torch::stack(list);
}

OutputMode mode_of(const json& options, OutputMode otherwise) {
  const std::map<std::string, OutputMode> modes = {{"int", OutputMode::kInt},
                                                   {"one_hot", OutputMode::kOneHot},
                                                   {"multi_hot", OutputMode::kMultiHot},
                                                   {"count", OutputMode::kCount}};
  return options.contains("output_mode") ? modes.at(options.at("output_mode")) : otherwise;
}

template <typename T>
std::optional<T> given(const json& options, const char* name) {
  return options.contains(name) ? std::optional<T>(options.at(name).get<T>()) : std::nullopt;
}

Tensor numbers_of(const json& options, const char* name) {
  return options.contains(name) ? golden_tensor(options.at(name)) : Tensor();
}

std::vector<int64_t> salt_of(const json& options) {
  if (!options.contains("salt")) return {};
  const json& salt = options.at("salt");
  return salt.is_array() ? salt.get<std::vector<int64_t>>() : std::vector<int64_t>{salt.get<int64_t>()};
}

AdaptedLayer layer_of(const json& golden) {
  const json& options = golden.at("options");
  const std::string name = golden.at("preprocessing");
  if (name == "Normalization") {
    return Normalization({.axis = {options.value("axis", int64_t{-1})},
                          .mean = numbers_of(options, "mean"),
                          .variance = numbers_of(options, "variance"),
                          .invert = options.value("invert", false)});
  }
  if (name == "Discretization") {
    return Discretization({.bin_boundaries = options.value("bin_boundaries", std::vector<double>()),
                           .num_bins = given<int64_t>(options, "num_bins"),
                           .epsilon = options.value("epsilon", 0.01),
                           .output_mode = mode_of(options, OutputMode::kInt)});
  }
  if (name == "IntegerLookup") {
    return IntegerLookup({.num_oov_indices = options.value("num_oov_indices", int64_t{1}),
                          .vocabulary = options.at("vocabulary"),
                          .invert = options.value("invert", false),
                          .output_mode = mode_of(options, OutputMode::kInt)});
  }
  if (name == "Hashing") {
    return AdaptedLayer(Hashing({.num_bins = options.at("num_bins"),
                                 .salt = salt_of(options),
                                 .output_mode = mode_of(options, OutputMode::kInt)}));
  }
  return AdaptedLayer(CategoryEncoding(
      {.num_tokens = options.at("num_tokens"), .output_mode = mode_of(options, OutputMode::kMultiHot)}));
}

Tensor output_of(const json& golden) {
  const json& options = golden.at("options");
  const json& input = golden.at("input");
  const std::string name = golden.at("preprocessing");
  if (name == "HashedCrossing") {
    std::vector<Tensor> features;
    for (const json& each : input) features.push_back(integers_of(each));
    return hashed_crossing(features,
                           {.num_bins = options.at("num_bins"), .output_mode = mode_of(options, OutputMode::kInt)});
  }
  const Tensor x = name == "Hashing" ? integers_of(input) : tensor_of(input);
  if (name == "CategoryEncoding") {
    const CategoryEncodingOptions given = {.num_tokens = options.at("num_tokens"),
                                           .output_mode = mode_of(options, OutputMode::kMultiHot)};
    const Tensor weights = numbers_of(golden, "count_weights");
    // A layer does not take one example alone.
    if (weights.defined() || x.dim() == 1) return encode_categories(x, given, weights);
  }
  AdaptedLayer layer = layer_of(golden);
  if (golden.contains("adapt")) layer.adapt(golden_tensor(golden.at("adapt")));
  return apply_layer(layer)(x);
}

std::string check(const json& golden) {
  if (golden.contains("raises")) {
    try {
      output_of(golden);
    } catch (const InvalidArgument&) {
      return "";
    }
    return "there was no error";
  }
  const bool rounded = golden.value("note", "").find("float32") != std::string::npos;
  const Tolerance within = {.absolute = rounded ? 1e-6 : 1e-12, .relative = rounded ? 1e-6 : 1e-8};
  return difference("the output", output_of(golden).to(torch::kDouble), golden_tensor(golden.at("output")), within);
}

TEST(KerasPreprocessing, MakesWhatKerasMakes) {
  int numbers = 0, texts = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) -> std::string {
    if (golden.at("kind") != "preprocessing") return "";
    if (has_text(golden.at("input")) || has_text(golden.value("output", json()))) {
      ++texts;
      return "";
    }
    ++numbers;
    return check(golden);
  });
  if (IsSkipped()) return;
  std::cout << numbers << " rows of numbers; " << texts << " rows of texts are left out\n";
  EXPECT_GT(numbers, 20);
}

}  // namespace
}  // namespace cohort::testing::keras_preprocessing_test
