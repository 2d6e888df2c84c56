#include "wings/keras/train/compiled.h"

#include <algorithm>
#include <limits>

#include "wings/keras/train/optimizers.h"
#include "wings/keras/train/taken_options.h"

namespace cohort {

namespace {

LossReduction reduction_of(TakenOptions& options) {
  const std::size_t choice = options.choice("reduction", kLossReductions, 0);
  return choice == 4 ? LossReduction::kSumOverBatchSize : static_cast<LossReduction>(choice);
}

// Takes the options that all losses have.
template <typename Options>
Options loss_options(TakenOptions& given) {
  Options options;
  options.reduction = reduction_of(given);
  options.name = given.text("name", options.name);
  given.take("dtype");  // that of the sum, which is float32 here, too
  if constexpr (requires { options.from_logits; }) options.from_logits = given.flag("from_logits", false);
  if constexpr (requires { options.label_smoothing; }) options.label_smoothing = given.number("label_smoothing", 0.0);
  if constexpr (requires { options.axis; }) options.axis = given.whole("axis", -1);
  if constexpr (requires { options.delta; }) options.delta = given.number("delta", 1.0);
  if constexpr (requires { options.ignore_class; }) {
    const int64_t none = std::numeric_limits<int64_t>::min();
    const int64_t ignored = given.whole("ignore_class", none);
    if (ignored != none) options.ignore_class = ignored;
  }
  return options;
}

Loss loss_of(const Json& value, const FilePlace& place) {
  try {
    if (value.is_string()) return Loss(value.get<std::string>().c_str());
  } catch (const NotFound& error) {
    place.unsupported(error.what());
  }
  const KerasObject object = keras_object(value, place);
  const std::string& name = object.class_name;
  TakenOptions options(object.config, place / name);
  const auto made = [&]() -> std::optional<Loss> {
    if (name == "SparseCategoricalCrossentropy") {
      return SparseCategoricalCrossentropy(loss_options<SparseCategoricalCrossentropyOptions>(options));
    }
    if (name == "CategoricalCrossentropy") {
      return CategoricalCrossentropy(loss_options<CategoricalCrossentropyOptions>(options));
    }
    if (name == "BinaryCrossentropy") return BinaryCrossentropy(loss_options<BinaryCrossentropyOptions>(options));
    if (name == "MeanSquaredError") return MeanSquaredError(loss_options<MeanSquaredErrorOptions>(options));
    if (name == "MeanAbsoluteError") return MeanAbsoluteError(loss_options<MeanAbsoluteErrorOptions>(options));
    if (name == "Huber") return Huber(loss_options<HuberOptions>(options));
    return std::nullopt;
  };
  std::optional<Loss> loss = made();
  if (!loss.has_value()) place.unsupported("the loss ", brief(name), " is not supported");
  options.end();
  return *loss;
}

template <typename Options>
Options metric_options(TakenOptions& given) {
  Options options;
  options.name = given.text("name", options.name);
  given.take("dtype");
  if constexpr (requires { options.threshold; }) options.threshold = given.number("threshold", options.threshold);
  if constexpr (requires { options.k; }) options.k = given.whole("k", options.k);
  return options;
}

Metric metric_of(const Json& value, const FilePlace& place) {
  // Keras logs these under the names that they were given by.
  if (value == "acc") return Accuracy({.name = "acc"});
  if (value == "mse") return MeanSquaredError({.name = "mse"});
  if (value == "mae") return MeanAbsoluteError({.name = "mae"});
  try {
    if (value.is_string()) return Metric(value.get<std::string>().c_str());
  } catch (const NotFound& error) {
    place.unsupported(error.what());
  }
  const KerasObject object = keras_object(value, place);
  const std::string& name = object.class_name;
  TakenOptions options(object.config, place / name);
  const auto made = [&]() -> std::optional<Metric> {
    if (name == "Accuracy") return EqualityAccuracy(metric_options<AccuracyOptions>(options));
    if (name == "SparseCategoricalAccuracy") {
      return SparseCategoricalAccuracy(metric_options<SparseCategoricalAccuracyOptions>(options));
    }
    if (name == "CategoricalAccuracy") {
      return CategoricalAccuracy(metric_options<CategoricalAccuracyOptions>(options));
    }
    if (name == "BinaryAccuracy") return BinaryAccuracy(metric_options<BinaryAccuracyOptions>(options));
    if (name == "TopKCategoricalAccuracy") return TopKCategoricalAccuracy(metric_options<TopKAccuracyOptions>(options));
    if (name == "SparseTopKCategoricalAccuracy") {
      options.take("from_sorted_ids");
      return SparseTopKCategoricalAccuracy(metric_options<TopKAccuracyOptions>(options));
    }
    if (name == "MeanSquaredError") return MeanSquaredError(metric_options<MeanSquaredErrorOptions>(options));
    if (name == "MeanAbsoluteError") return MeanAbsoluteError(metric_options<MeanAbsoluteErrorOptions>(options));
    return std::nullopt;
  };
  std::optional<Metric> metric = made();
  if (!metric.has_value()) place.unsupported("the metric ", brief(name), " is not supported");
  options.end();
  return *metric;
}

std::vector<Metric> metrics_of(const Json& value, const FilePlace& place) {
  std::vector<Metric> metrics;
  if (value.is_null()) return metrics;
  if (!value.is_array()) place.unsupported(brief(value), " is not supported, only a list");
  for (const Json& each : value) metrics.push_back(metric_of(each, place));
  return metrics;
}

// Calls visit(name, value) for each output's part of an option, which is a list in the order of the outputs or a
// dictionary.
template <typename Visit>
void each_output(const Json& value, const std::vector<std::string>& outputs, const FilePlace& place,
                 const Visit& visit) {
  if (value.is_array()) {
    if (value.size() != outputs.size()) {
      place.damaged("there are ", value.size(), " for ", outputs.size(), " outputs");
    }
    for (std::size_t i = 0; i < value.size(); ++i) visit(outputs[i], value[i]);
    return;
  }
  for (const auto& [name, each] : value.items()) {
    const bool known = std::find(outputs.begin(), outputs.end(), name) != outputs.end();
    if (!known) place.damaged(brief(name), " is the name of no output");
    visit(name, each);
  }
}

bool is_object_of_class(const Json& value) {
  return value.is_object() && value.contains("class_name");
}

void set_losses(const Json& value, const std::vector<std::string>& outputs, const FilePlace& place,
                CompileOptions& options) {
  if (value.is_string() || is_object_of_class(value)) {
    if (outputs.size() == 1) return static_cast<void>(options.loss = loss_of(value, place));
    for (const std::string& each : outputs) options.losses.emplace_back(each, loss_of(value, place));
    return;
  }
  each_output(value, outputs, place, [&](const std::string& name, const Json& each) {
    if (each.is_null()) return options.losses.emplace_back(name, std::nullopt), void();
    if (outputs.size() == 1) return static_cast<void>(options.loss = loss_of(each, place));
    options.losses.emplace_back(name, loss_of(each, place));
  });
}

void set_metrics(const Json& value, const std::vector<std::string>& outputs, const FilePlace& place,
                 std::vector<Metric>& only, NamedMetrics& named) {
  if (value.is_null()) return;
  if (outputs.size() == 1 && value.is_array()) {
    // A list may hold the list of the only output.
    const bool nested = value.size() == 1 && value[0].is_array();
    return static_cast<void>(only = metrics_of(nested ? value[0] : value, place));
  }
  each_output(value, outputs, place, [&](const std::string& name, const Json& each) {
    const Json list = each.is_array() || each.is_null() ? each : Json::array({each});
    std::vector<Metric> metrics = metrics_of(list, place);
    if (outputs.size() == 1) return static_cast<void>(only = std::move(metrics));
    if (!metrics.empty()) named.emplace_back(name, std::move(metrics));
  });
}

}  // namespace

std::optional<CompileOptions> compile_options(const Json& config, const std::vector<std::string>& outputs,
                                              const FilePlace& place) {
  if (config.is_null() || (config.is_object() && config.empty())) return std::nullopt;
  TakenOptions given(config, place);
  const Json optimizer = given.take("optimizer");
  const Json loss = given.take("loss");
  if (loss.is_null()) place.unsupported("a model that was compiled without a loss is not supported");
  CompileOptions options{.optimizer = read_keras_optimizer(optimizer, place / "optimizer")};
  set_losses(loss, outputs, place / "loss", options);
  const Json weights = given.take("loss_weights");
  if (!weights.is_null()) {
    each_output(weights.is_number() ? Json::array({weights}) : weights, outputs, place / "loss_weights",
                [&](const std::string& name, const Json& each) {
                  options.loss_weights.emplace_back(name, each.get<double>());
                });
  }
  set_metrics(given.take("metrics"), outputs, place / "metrics", options.metrics, options.output_metrics);
  set_metrics(given.take("weighted_metrics"), outputs, place / "weighted_metrics", options.weighted_metrics,
              options.weighted_output_metrics);
  options.steps_per_execution = given.whole("steps_per_execution", 1);
  options.run_eagerly = given.flag("run_eagerly", false);
  given.take("jit_compile");      // changes no result; compile() knows what the devices can do
  given.take("auto_scale_loss");  // is for mixed precision, which layers would name
  given.end();
  return options;
}

}  // namespace cohort
