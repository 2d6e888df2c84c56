// Tells files of the layers of this wing.
#include "base/extension.h"
#include "train/layers/layer_row.h"
#include "wings/preprocessing/train/categories.h"
#include "wings/preprocessing/train/discretization.h"
#include "wings/preprocessing/train/integer_lookup.h"
#include "wings/preprocessing/train/normalization.h"

namespace cohort {

inline constexpr auto option_names(OovMethod /*of*/) {
  return std::to_array<std::string_view>({"floormod", "farmhash"});
}

namespace {

// Takes options by their names; one that is not there or not set leaves the default.
class PreparedOptions {
 public:
  PreparedOptions(std::string_view type, const LayerConfig& config) : type_(type), config_(config) {}

  template <typename T>
  PreparedOptions& take(std::string_view name, T& option) {
    const OptionValue* const value = find(name);
    if (value == nullptr) return *this;
    if constexpr (std::is_same_v<T, torch::Tensor>) {
      option = tensor_of(name, *value);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      const torch::Tensor numbers = tensor_of(name, *value).contiguous();
      if (numbers.dim() != 1) detail::fail_option_value(name, *value, numbers);
      for (int64_t i = 0; i < numbers.size(0); ++i) option.push_back(numbers[i].item<double>());
    } else {
      set_option(name, *value, option);
    }
    return *this;
  }
  // Fails if there are others.
  void end() const {
    if (taken_ < config_.size()) fail<InvalidArgument>("[layers] ", type_, " has other options only");
  }

 private:
  const OptionValue* find(std::string_view name) {
    for (const auto& [given, value] : config_) {
      if (given != name) continue;
      ++taken_;
      return std::holds_alternative<std::monostate>(value) ? nullptr : &value;
    }
    return nullptr;
  }
  static torch::Tensor tensor_of(std::string_view name, const OptionValue& value) {
    if (const auto* const numbers = std::get_if<torch::Tensor>(&value)) return numbers->to(torch::kDouble);
    if (const auto* const integers = std::get_if<std::vector<int64_t>>(&value)) {
      return torch::tensor(*integers).to(torch::kDouble);
    }
    double number = 0.0;
    set_option(name, value, number);
    return torch::tensor(number, torch::kDouble);
  }

  std::string_view type_;
  const LayerConfig& config_;
  std::size_t taken_ = 0;
};

OptionValue numbers_value(const std::vector<double>& numbers) {
  return numbers.empty() ? OptionValue() : torch::tensor(numbers, torch::kDouble);
}

LayerRow normalization_row() {
  const auto tell = [](const NormalizationOptions& given) {
    const auto numbers = [](const torch::Tensor& each) { return each.defined() ? OptionValue(each) : OptionValue(); };
    return LayerConfig{{"axis", given.axis},
                       {"invert", given.invert},
                       {"mean", numbers(given.mean)},
                       {"variance", numbers(given.variance)}};
  };
  return row_of<NormalizationOptions>("Normalization", tell, [](const LayerConfig& config) {
    NormalizationOptions options;
    PreparedOptions given("Normalization", config);
    given.take("axis", options.axis).take("invert", options.invert).take("mean", options.mean);
    given.take("variance", options.variance).end();
    // A file brings the statistics later; without them they are 0 and 1, as in Keras.
    return Layer(normalization_kind(options, NormalizationStatistics{}));
  });
}

LayerRow category_encoding_row() {
  const auto tell = [](const CategoryEncodingOptions& given) {
    return LayerConfig{{"num_tokens", given.num_tokens}, {"output_mode", option_value(given.output_mode)}};
  };
  return row_of<CategoryEncodingOptions>("CategoryEncoding", tell, [](const LayerConfig& config) {
    CategoryEncodingOptions options;
    PreparedOptions given("CategoryEncoding", config);
    given.take("num_tokens", options.num_tokens).take("output_mode", options.output_mode).end();
    return CategoryEncoding(options);
  });
}

LayerRow discretization_row() {
  const auto tell = [](const DiscretizationParts& given) {
    const DiscretizationOptions& options = given.options;
    return LayerConfig{{"bin_boundaries", numbers_value(given.learned.value_or(options.bin_boundaries))},
                       {"num_bins", option_value(options.num_bins)},
                       {"epsilon", options.epsilon},
                       {"output_mode", option_value(options.output_mode)}};
  };
  return row_of<DiscretizationParts>("Discretization", tell, [](const LayerConfig& config) -> Layer {
    DiscretizationParts parts;
    DiscretizationOptions& options = parts.options;
    PreparedOptions given("Discretization", config);
    given.take("bin_boundaries", options.bin_boundaries).take("num_bins", options.num_bins);
    given.take("epsilon", options.epsilon).take("output_mode", options.output_mode).end();
    // Both are there where the boundaries were learned.
    if (options.num_bins.has_value() && !options.bin_boundaries.empty()) {
      parts.learned = std::exchange(options.bin_boundaries, {});
    }
    return discretization_of(parts);
  });
}

LayerRow integer_lookup_row() {
  const auto tell = [](const IntegerLookupParts& given) {
    const IntegerLookupOptions& options = given.options;
    const std::vector<int64_t>& tokens = given.learned.has_value() ? given.learned->tokens : options.vocabulary;
    return LayerConfig{{"max_tokens", option_value(options.max_tokens)},
                       {"num_oov_indices", options.num_oov_indices},
                       {"mask_token", option_value(options.mask_token)},
                       {"oov_token", options.oov_token},
                       {"vocabulary", tokens.empty() ? OptionValue() : OptionValue(tokens)},
                       {"idf_weights", numbers_value(options.idf_weights)},
                       {"invert", options.invert},
                       {"output_mode", option_value(options.output_mode)},
                       {"pad_to_max_tokens", options.pad_to_max_tokens},
                       {"oov_method", option_value(options.oov_method)},
                       {"salt", options.salt.empty() ? OptionValue() : OptionValue(options.salt)}};
  };
  return row_of<IntegerLookupParts>("IntegerLookup", tell, [](const LayerConfig& config) -> Layer {
    IntegerLookupOptions options;
    PreparedOptions given("IntegerLookup", config);
    given.take("max_tokens", options.max_tokens).take("num_oov_indices", options.num_oov_indices);
    given.take("mask_token", options.mask_token).take("oov_token", options.oov_token);
    given.take("vocabulary", options.vocabulary).take("idf_weights", options.idf_weights);
    given.take("invert", options.invert).take("output_mode", options.output_mode);
    given.take("pad_to_max_tokens", options.pad_to_max_tokens).take("oov_method", options.oov_method);
    given.take("salt", options.salt).end();
    return IntegerLookup(options);
  });
}

LayerRow hashing_row() {
  const auto tell = [](const HashingOptions& given) {
    return LayerConfig{{"num_bins", given.num_bins},
                       {"mask_value", option_value(given.mask_value)},
                       {"salt", given.salt.empty() ? OptionValue() : OptionValue(given.salt)},
                       {"output_mode", option_value(given.output_mode)}};
  };
  return row_of<HashingOptions>("Hashing", tell, [](const LayerConfig& config) {
    HashingOptions options;
    PreparedOptions given("Hashing", config);
    given.take("num_bins", options.num_bins).take("mask_value", options.mask_value);
    given.take("salt", options.salt).take("output_mode", options.output_mode).end();
    return Hashing(options);
  });
}

}  // namespace

void install_preprocessing() {
  extend(normalization_row());
  extend(category_encoding_row());
  extend(discretization_row());
  extend(integer_lookup_row());
  extend(hashing_row());
}

}  // namespace cohort
