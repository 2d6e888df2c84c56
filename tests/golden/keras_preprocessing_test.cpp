// Keras 3's layers that prepare features (facts.json): what they learn, and what they make of numbers and of texts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <optional>

#include "cohort/error.h"
#include "cohort/train/layers/preprocessing.h"
#include "cohort/train/text_vectorization.h"
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
                                                   {"count", OutputMode::kCount},
                                                   {"tf_idf", OutputMode::kTfIdf}};
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

// Returns texts of nested lists, one after the other.
void append_texts(const json& value, std::vector<std::string>& texts) {
  if (value.is_string()) return texts.push_back(value);
  for (const json& each : value) append_texts(each, texts);
}
std::vector<std::string> texts_of(const json& value) {
  std::vector<std::string> texts;
  append_texts(value, texts);
  return texts;
}
// Returns what a function makes of the texts in nested lists, in their shape.
Tensor for_texts(const json& value, const std::function<Tensor(const std::vector<std::string>&)>& function) {
  std::vector<int64_t> shape;
  for (const json* list = &value; list->is_array(); list = &list->at(0)) {
    shape.push_back(static_cast<int64_t>(list->size()));
  }
  return function(texts_of(value)).view(shape);
}

StringLookup string_lookup_of(const json& golden) {
  const json& options = golden.at("options");
  StringLookup lookup({.max_tokens = given<int64_t>(options, "max_tokens"),
                       .num_oov_indices = options.value("num_oov_indices", int64_t{1}),
                       .mask_token = given<std::string>(options, "mask_token"),
                       .vocabulary = options.value("vocabulary", std::vector<std::string>()),
                       .output_mode = mode_of(options, OutputMode::kInt),
                       .pad_to_max_tokens = options.value("pad_to_max_tokens", false)});
  if (golden.contains("adapt")) lookup.adapt(texts_of(golden.at("adapt")));
  return lookup;
}

TextVectorization vectorization_of(const json& golden) {
  const json& options = golden.at("options");
  const std::map<json, Standardize> standardize = {{nullptr, Standardize::kNone},
                                                   {"lower", Standardize::kLower},
                                                   {"strip_punctuation", Standardize::kStripPunctuation}};
  TextVectorizationOptions given_options = {.max_tokens = given<int64_t>(options, "max_tokens"),
                                            .ngrams = options.value("ngrams", std::vector<int64_t>()),
                                            .output_mode = mode_of(options, OutputMode::kInt),
                                            .output_sequence_length = given<int64_t>(options, "output_sequence_length"),
                                            .vocabulary = options.value("vocabulary", std::vector<std::string>()),
                                            .idf_weights = options.value("idf_weights", std::vector<double>())};
  if (options.contains("standardize")) given_options.standardize = standardize.at(options.at("standardize"));
  if (options.contains("split")) given_options.split = SplitText::kCharacter;
  TextVectorization vectorize(given_options);
  if (golden.contains("adapt")) vectorize.adapt(texts_of(golden.at("adapt")));
  return vectorize;
}

Tensor hashes_of(const json& options, const json& input) {
  const TextHashingOptions hashing = {.num_bins = options.at("num_bins"), .salt = salt_of(options)};
  const Tensor bins = for_texts(input, [&](const auto& texts) { return hash_texts(texts, hashing); });
  if (!options.contains("output_mode")) return bins;
  return encode_categories(bins, {.num_tokens = hashing.num_bins, .output_mode = mode_of(options, OutputMode::kInt)});
}

Tensor output_of(const json& golden) {
  const json& options = golden.at("options");
  const json& input = golden.at("input");
  const std::string name = golden.at("preprocessing");
  if (name == "HashedCrossing") {
    std::vector<Tensor> features;
    for (const json& each : input) {
      features.push_back(has_text(each) ? for_texts(each, text_fingerprints) : integers_of(each));
    }
    return hashed_crossing(features,
                           {.num_bins = options.at("num_bins"), .output_mode = mode_of(options, OutputMode::kInt)});
  }
  if (name == "Hashing" && has_text(input)) return hashes_of(options, input);
  if (name == "TextVectorization") return vectorization_of(golden)(texts_of(input));
  if (name == "StringLookup") {
    const StringLookup lookup = string_lookup_of(golden);
    return input.at(0).is_array() ? lookup.batch(input) : lookup(input);
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
  if (golden.at("options").value("invert", false) && golden.at("preprocessing") == "StringLookup") {
    const bool same = string_lookup_of(golden).tokens(integers_of(golden.at("input"))) == texts_of(golden.at("output"));
    return same ? "" : "the tokens differ";
  }
  // Weights of tokens are float32.
  const bool weighs = mode_of(golden.at("options"), OutputMode::kInt) == OutputMode::kTfIdf;
  const bool rounded = weighs || golden.value("note", "").find("float32") != std::string::npos;
  const Tolerance within = {.absolute = rounded ? 1e-6 : 1e-12, .relative = rounded ? 1e-6 : 1e-8};
  return difference("the output", output_of(golden).to(torch::kDouble), golden_tensor(golden.at("output")), within);
}

// Checks what texts were found to have, the special tokens included.
std::string check_vocabulary(const json& golden) {
  const std::string name = golden.at("preprocessing");
  if (name != "StringLookup" && name != "TextVectorization") return "";
  const bool whole = name == "TextVectorization";
  const std::vector<std::string> got =
      whole ? vectorization_of(golden).vocabulary() : string_lookup_of(golden).vocabulary();
  return got == texts_of(golden.at("vocabulary")) ? "" : "the vocabulary differs";
}

TEST(KerasPreprocessing, MakesWhatKerasMakes) {
  int rows = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) -> std::string {
    if (golden.at("kind") != "preprocessing") return "";
    ++rows;
    return check(golden) + check_vocabulary(golden);
  });
  if (IsSkipped()) return;
  EXPECT_GT(rows, 40);
}

}  // namespace
}  // namespace cohort::testing::keras_preprocessing_test
