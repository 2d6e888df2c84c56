#include "wings/keras/train/values.h"

#include <array>

#include "wings/keras/train/taken_options.h"

namespace cohort {

namespace {

using Scaling = VarianceScalingOptions;

constexpr std::array kModes = {"fan_in", "fan_out", "fan_avg"};
constexpr std::array kOrthogonalModes = {"rows", "columns"};
constexpr std::array kDistributions = {"truncated_normal", "untruncated_normal", "uniform"};

Initializer scaled(TakenOptions& options) {
  return Initializer::variance_scaling(
      {.scale = options.number("scale", 1.0),
       .mode = static_cast<Scaling::Mode>(options.choice("mode", kModes, 0)),
       .distribution = static_cast<Scaling::Distribution>(options.choice("distribution", kDistributions, 0))});
}

Initializer made_initializer(const std::string& name, TakenOptions& options, const FilePlace& place) {
  const auto normal = [&] {
    return NormalOptions{.mean = options.number("mean", 0.0), .stddev = options.number("stddev", 0.05)};
  };
  if (name == "Constant") return Initializer::constant(options.number("value", 0.0));
  if (name == "RandomUniform") {
    const double low = options.number("minval", -0.05);
    return Initializer::random_uniform(low, options.number("maxval", 0.05));
  }
  if (name == "RandomNormal") return Initializer::random_normal(normal());
  if (name == "TruncatedNormal") return Initializer::truncated_normal(normal());
  if (name == "VarianceScaling") return scaled(options);
  if (name == "Orthogonal") return Initializer::orthogonal(options.number("gain", 1.0));
  if (name == "Identity" || name == "IdentityInitializer") return Initializer::identity(options.number("gain", 1.0));
  for (const char* const plain :
       {"Zeros", "Ones", "GlorotUniform", "GlorotNormal", "HeUniform", "HeNormal", "LecunUniform", "LecunNormal"}) {
    if (name == plain) return Initializer::parse(name);
  }
  place.unsupported("the initializer ", brief(name), " is not supported");
}

}  // namespace

Json object_json(const char* module, const std::string& class_name, Json config) {
  return {{"module", module}, {"class_name", class_name}, {"config", std::move(config)}, {"registered_name", nullptr}};
}

Initializer initializer_of(const Json& value, const FilePlace& place) {
  try {
    if (value.is_string()) return Initializer::parse(value.get<std::string>());
  } catch (const NotFound& error) {
    place.unsupported(error.what());
  }
  const KerasObject object = keras_object(value, place);
  TakenOptions options(object.config, place / object.class_name);
  options.take("seed");  // draws are this library's own
  Initializer made = made_initializer(object.class_name, options, place);
  options.end();
  return made;
}

Regularizer regularizer_of(const Json& value, const FilePlace& place) {
  if (value.is_null()) return {};
  const bool named = value.is_string();
  KerasObject object{.class_name = named ? value.get<std::string>() : "", .config = Json::object()};
  if (named) {
    try {
      return Regularizer::parse(object.class_name);
    } catch (const NotFound& error) {
      place.unsupported(error.what());
    }
  }
  object = keras_object(value, place);
  TakenOptions options(object.config, place / object.class_name);
  if (object.class_name == "OrthogonalRegularizer") {
    const double factor = options.number("factor", 0.01);
    const auto mode = static_cast<Regularizer::Mode>(options.choice("mode", kOrthogonalModes, 0));
    options.end();
    return Regularizer::orthogonal(factor, mode);
  }
  if (object.class_name != "L1" && object.class_name != "L2" && object.class_name != "L1L2") {
    place.unsupported("the regularizer ", brief(object.class_name), " is not supported");
  }
  const double l1 = options.number("l1", 0.0);
  const double l2 = options.number("l2", 0.0);
  options.end();
  return Regularizer::l1_l2(l1, l2);
}

Activation activation_of(const Json& value, const FilePlace& place) {
  if (value.is_null()) return {};
  try {
    if (value.is_string()) return Activation::parse(value.get<std::string>());
    // Functions by name are the only ones; any other object would be somebody's code.
    if (value.is_object() && value.value("class_name", Json()) == "function" && value.contains("config") &&
        value.at("config").is_string()) {
      return Activation::parse(value.at("config").get<std::string>());
    }
  } catch (const NotFound& error) {
    place.unsupported(error.what());
  }
  place.unsupported("the activation ", brief(value), " is not supported");
}

namespace {

constexpr int kMaxRank = 8;

// Appends the numbers of nested lists, which have the same lengths everywhere, and finds these.
void append_numbers(const Json& list, std::size_t depth, std::vector<int64_t>& sizes, std::vector<double>& numbers,
                    const FilePlace& place) {
  if (list.is_number() && depth == sizes.size()) {
    numbers.push_back(list.get<double>());
    return;
  }
  const bool is_first = numbers.empty() && list.is_array() && depth == sizes.size() && depth < kMaxRank;
  if (is_first) sizes.push_back(static_cast<int64_t>(list.size()));
  if (!list.is_array() || list.empty() || depth >= sizes.size() || sizes[depth] != static_cast<int64_t>(list.size())) {
    place.unsupported(brief(list), " is not supported");
  }
  for (const Json& each : list) append_numbers(each, depth + 1, sizes, numbers, place);
}

}  // namespace

OptionValue plain_value(const Json& value, const FilePlace& place) {
  if (value.is_null()) return {};
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  bool whole = value.is_array();
  for (const Json& each : value) whole = whole && each.is_number_integer();
  if (whole) return value.get<std::vector<int64_t>>();
  std::vector<int64_t> sizes;
  std::vector<double> numbers;
  append_numbers(value, 0, sizes, numbers, place);
  return torch::tensor(numbers, torch::kDouble).reshape(sizes);
}

namespace {

std::vector<int64_t> axes(TakenOptions& options) {
  const Json value = options.take("axis");
  if (value.is_number_integer()) return {value.get<int64_t>()};
  if (value.is_null()) return {0};
  bool whole = value.is_array();
  for (const Json& each : value) whole = whole && each.is_number_integer();
  if (!whole) options.place().unsupported("axis = ", brief(value), " is not supported");
  return value.get<std::vector<int64_t>>();
}

Constraint made_constraint(const std::string& name, TakenOptions& options, const FilePlace& place) {
  if (name == "MaxNorm") return MaxNorm{.max_value = options.number("max_value", 2.0), .axis = axes(options)};
  if (name == "NonNeg") return NonNeg{};
  if (name == "UnitNorm") return UnitNorm{.axis = axes(options)};
  if (name == "MinMaxNorm") {
    return MinMaxNorm{.min_value = options.number("min_value", 0.0),
                      .max_value = options.number("max_value", 1.0),
                      .rate = options.number("rate", 1.0),
                      .axis = axes(options)};
  }
  place.unsupported("the constraint ", brief(name), " is not supported");
}

}  // namespace

Constraint constraint_of(const Json& value, const FilePlace& place) {
  if (value.is_null()) return {};
  const KerasObject object = keras_object(value, place);
  TakenOptions options(object.config, place / object.class_name);
  try {
    Constraint made = made_constraint(object.class_name, options, place);
    options.end();
    return made;
  } catch (const InvalidArgument& error) {
    place.unsupported(error.what());
  }
}

namespace {

// Makes the JSON of each sort of value.
struct ToJson {
  const FilePlace& place;

  Json operator()(const Initializer& initializer) const {
    const auto& [name, n] = initializer.recipe();
    const auto made = [](const char* class_name, Json config) {
      config["seed"] = nullptr;
      return object_json("keras.initializers", class_name, std::move(config));
    };
    if (name == "constant") return object_json("keras.initializers", "Constant", {{"value", n.at(0)}});
    if (name == "random_uniform") return made("RandomUniform", {{"minval", n.at(0)}, {"maxval", n.at(1)}});
    if (name == "random_normal") return made("RandomNormal", {{"mean", n.at(0)}, {"stddev", n.at(1)}});
    if (name == "truncated_normal") return made("TruncatedNormal", {{"mean", n.at(0)}, {"stddev", n.at(1)}});
    if (name == "orthogonal") return made("Orthogonal", {{"gain", n.at(0)}});
    if (name == "identity") return object_json("keras.initializers", "Identity", {{"gain", n.at(0)}});
    if (name == "variance_scaling") {
      return made("VarianceScaling", {{"scale", n.at(0)},
                                      {"mode", kModes.at(static_cast<std::size_t>(n.at(1)))},
                                      {"distribution", kDistributions.at(static_cast<std::size_t>(n.at(2)))}});
    }
    place.unsupported("an initializer is a function of the program's, which no file can hold");
  }

  Json operator()(const Regularizer& regularizer) const {
    if (!regularizer) return nullptr;
    const auto& [name, n] = regularizer.recipe();
    if (name == "orthogonal") {
      return object_json("keras.regularizers", "OrthogonalRegularizer",
                         {{"factor", n.at(0)}, {"mode", kOrthogonalModes.at(static_cast<std::size_t>(n.at(1)))}});
    }
    if (name != "l1_l2") place.unsupported("a regularizer is a function of the program's, which no file can hold");
    return object_json("keras.regularizers", "L1L2", {{"l1", n.at(0)}, {"l2", n.at(1)}});
  }

  Json operator()(const Activation& activation) const {
    if (activation.is_users()) {
      place.unsupported("the activation \"", activation.name(),
                        "\" is a function of the program's, which no file can hold");
    }
    return std::string(activation.name());
  }
  Json operator()(const Constraint& constraint) const {
    const auto made = [](const char* name, Json config) { return object_json("keras.constraints", name, config); };
    const Constraint::Kind& kind = constraint.kind();
    if (const auto* const most = std::get_if<MaxNorm>(&kind)) {
      return made("MaxNorm", {{"max_value", most->max_value}, {"axis", most->axis}});
    }
    if (const auto* const both = std::get_if<MinMaxNorm>(&kind)) {
      return made(
          "MinMaxNorm",
          {{"min_value", both->min_value}, {"max_value", both->max_value}, {"rate", both->rate}, {"axis", both->axis}});
    }
    if (std::holds_alternative<NonNeg>(kind)) return made("NonNeg", Json::object());
    if (const auto* const unit = std::get_if<UnitNorm>(&kind)) return made("UnitNorm", {{"axis", unit->axis}});
    if (!constraint) return nullptr;
    place.unsupported("a constraint is a function of the program's, which no file can hold");
  }
  Json operator()(const std::vector<Layer>& /*layers*/) const { place.unsupported("layers are no option here"); }
  Json operator()(std::monostate /*unset*/) const { return nullptr; }
  Json operator()(const torch::Tensor& numbers) const {
    if (numbers.dim() == 0) return numbers.item<double>();
    Json list = Json::array();
    for (int64_t i = 0; i < numbers.size(0); ++i) list.push_back((*this)(numbers[i]));
    return list;
  }
  template <typename Plain>
  Json operator()(const Plain& value) const {
    return value;
  }
};

}  // namespace

Json json_of(const OptionValue& value, const FilePlace& place) {
  return std::visit(ToJson{place}, value);
}

}  // namespace cohort
