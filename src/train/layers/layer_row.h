// LayerRow: how a sort of layer is told by the names of its options, and made of them, for files. A wing extends the
// core with a row for each of its sorts. A struct of options is enough for one: its fields are found by their names.
#pragma once

#include <algorithm>
#include <any>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "train/layers/support.h"

namespace cohort {

// The value of an option. std::monostate: it is not set.
using OptionValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<int64_t>, Activation,
                                 Initializer, Regularizer, std::vector<Layer>, Constraint, torch::Tensor>;
// Options by the names of their fields, without "name" and "trainable".
using LayerConfig = std::vector<std::pair<std::string, OptionValue>>;

struct LayerRow {
  std::string_view type;  // "Dense"
  // Tells what LayerKind::options() has; nothing: it is not of this sort's.
  std::function<std::optional<LayerConfig>(const std::any& options)> tell;
  // Makes a layer, with defaults for what is not given. InvalidArgument: an option is not known, or of another sort.
  std::function<Layer(const LayerConfig& config)> make;
};

// Returns the values of an enumeration in files, in their order. A wing adds an overload for its own.
inline constexpr auto option_names(Padding /*of*/) {
  return std::to_array<std::string_view>({"valid", "same", "causal"});
}

// clang-format off
#define COHORT_LAYER_OPTIONS(X) \
  X(activation) X(alpha) X(axes) X(axis) X(beta_constraint) X(bias_constraint) X(bias_initializer) X(bias_regularizer) \
  X(center) X(channels_first) X(depth_multiplier) X(depthwise_constraint) X(depthwise_initializer) \
  X(depthwise_regularizer) X(dilation_rate) X(dimensions) X(dropout) X(embeddings_constraint) \
  X(embeddings_initializer) X(embeddings_regularizer) X(epsilon) X(factor) X(fill_mode) X(fill_value) X(filters) \
  X(gamma_constraint) X(go_backwards) X(groups) X(height) X(height_factor) X(horizontal) X(input_dim) X(interpolation) \
  X(keepdims) X(kernel_constraint) X(kernel_initializer) X(kernel_regularizer) X(kernel_size) X(key_dim) X(lower) \
  X(mask_zero) X(masks) X(max_value) X(momentum) X(moving_variance) X(negative_slope) X(normalize) X(num_heads) \
  X(output_dim) X(output_padding) X(output_size) X(padding) X(pointwise_constraint) X(pointwise_initializer) \
  X(pointwise_regularizer) X(pool_size) X(rate) X(recurrent_activation) X(recurrent_constraint) X(recurrent_dropout) \
  X(recurrent_initializer) X(recurrent_regularizer) X(replica_statistics) X(reset_after) X(return_attention_scores) \
  X(return_sequences) X(return_state) X(scale) X(score_mode) X(size) X(stddev) X(strides) X(synchronized) X(threshold) \
  X(unit_forget_bias) X(units) X(upper) X(use_bias) X(use_causal_mask) X(use_scale) X(value_dim) X(value_range) \
  X(vertical) X(width) X(width_factor) X(zero_output_for_mask)
// clang-format on

namespace detail {

struct AnyField {
  template <typename T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <typename Options, typename... Fields>
consteval int count_fields() {
  if constexpr (requires { Options{Fields{}..., AnyField{}}; }) {
    return count_fields<Options, Fields..., AnyField>();
  } else {
    return static_cast<int>(sizeof...(Fields));
  }
}

// Fails with InvalidArgument for a value that an option cannot have; wanted: what the same sort would be.
[[noreturn]] void fail_option_value(std::string_view name, const OptionValue& came, const OptionValue& wanted);

}  // namespace detail

// Calls visit(name, field) for each option.
template <typename Options, typename Visit>
void each_option(Options& options, const Visit& visit) {
  // clang-format off
  constexpr auto kCount = [] {
    int sum = requires(Options& o) { o.trainable; } ? 2 : 1;  // the name, which each has
#define COHORT_COUNT(field) sum += requires(Options& o) { o.field; } ? 1 : 0;
    COHORT_LAYER_OPTIONS(COHORT_COUNT)
#undef COHORT_COUNT
    return sum;
  }();
  // clang-format on
  static_assert(kCount == detail::count_fields<std::remove_const_t<Options>>(),
                "an option is missing in COHORT_LAYER_OPTIONS");
#define COHORT_VISIT(field) \
  if constexpr (requires { options.field; }) visit(std::string_view(#field), options.field);
  COHORT_LAYER_OPTIONS(COHORT_VISIT)
#undef COHORT_VISIT
}

template <typename T>
OptionValue option_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(option_names(value)[static_cast<std::size_t>(value)]);
  } else if constexpr (requires { value.has_value(); }) {
    return value.has_value() ? option_value(*value) : OptionValue();
  } else if constexpr (requires { value.low; }) {
    return torch::tensor({value.low, value.high}, torch::kDouble);
  } else if constexpr (requires { value.depth; }) {
    return std::vector<int64_t>{value.depth, value.height, value.width};
  } else if constexpr (requires { value.height; }) {
    return std::vector<int64_t>{value.height, value.width};
  } else {
    return value;
  }
}

// Sets an option. InvalidArgument: the value is of another sort.
template <typename T>
void set_option(std::string_view name, const OptionValue& value, T& option) {
  const auto wanted = [&]<typename As>(const As& like) -> const As& {
    if (const As* const got = std::get_if<As>(&value)) return *got;
    detail::fail_option_value(name, value, like);
  };
  if constexpr (std::is_enum_v<T>) {
    const auto names = option_names(option);
    const auto found = std::find(names.begin(), names.end(), wanted(std::string()));
    if (found == names.end()) detail::fail_option_value(name, value, std::string());
    option = static_cast<T>(found - names.begin());
  } else if constexpr (requires { option.has_value(); }) {
    if (std::holds_alternative<std::monostate>(value)) return option.reset();
    typename T::value_type set = 0;
    set_option(name, value, set);
    option = set;
  } else if constexpr (requires { option.low; }) {
    // One number stands for the same distance on both sides of 0.
    if (std::holds_alternative<double>(value)) return static_cast<void>(option = std::get<double>(value));
    if (const auto* const whole = std::get_if<int64_t>(&value)) return static_cast<void>(option = T(double(*whole)));
    const auto* const list = std::get_if<std::vector<int64_t>>(&value);
    const torch::Tensor ends = list != nullptr ? torch::tensor(*list) : wanted(torch::Tensor());
    if (ends.dim() != 1 || ends.numel() != 2) detail::fail_option_value(name, value, value);
    option = T(ends[0].template item<double>(), ends[1].template item<double>());
  } else if constexpr (requires { option.height; }) {
    const std::vector<int64_t>& sizes = wanted(std::vector<int64_t>());
    const std::size_t count = std::get<std::vector<int64_t>>(option_value(option)).size();
    if (sizes.size() != count) detail::fail_option_value(name, value, sizes);
    option.height = sizes[count - 2];
    option.width = sizes[count - 1];
    if constexpr (requires { option.depth; }) option.depth = sizes[0];
  } else if constexpr (std::is_same_v<T, double>) {
    const int64_t* const whole = std::get_if<int64_t>(&value);
    option = whole != nullptr ? static_cast<double>(*whole) : wanted(0.0);
  } else {
    option = wanted(option);
  }
}

// Sets options by their names. InvalidArgument: there is no option of a name, or its value is of another sort.
template <typename Options>
void set_options(std::string_view type, const LayerConfig& config, Options& options) {
  for (const auto& [given, value] : config) {
    bool known = false;
    each_option(options, [&, &name = given, &value = value](std::string_view option, auto& field) {
      if (option != name) return;
      set_option(option, value, field);
      known = true;
    });
    if (!known) fail<InvalidArgument>("[layers] ", type, " has no option \"", given, "\"");
  }
}

// Returns the row of a sort of layer that is made with a Given. tell(given) returns its options, make(config) a layer.
template <typename Given, typename Tell, typename Make>
LayerRow row_of(std::string_view type, const Tell& tell, const Make& make) {
  const auto told = [tell](const std::any& options) -> std::optional<LayerConfig> {
    const auto* const given = std::any_cast<Given>(&options);
    return given == nullptr ? std::nullopt : std::optional<LayerConfig>(tell(*given));
  };
  return {.type = type, .tell = told, .make = make};
}

// Returns the row of a sort of layer that is made of a struct of options.
template <typename Options>
LayerRow layer_row(std::string_view type, Layer (*make)(const Options&)) {
  const auto tell = [](const Options& given) {
    LayerConfig config;
    each_option(given, [&](std::string_view name, const auto& option) {
      config.emplace_back(std::string(name), option_value(option));
    });
    return config;
  };
  return row_of<Options>(type, tell, [type, make](const LayerConfig& config) {
    Options options;
    set_options(type, config, options);
    return make(options);
  });
}

}  // namespace cohort
