#include "wings/keras/train/write_compiled.h"

#include "wings/keras/train/compiled.h"
#include "wings/keras/train/optimizers.h"
#include "wings/keras/train/values.h"

namespace cohort {

namespace {

// Writes the options that losses and metrics have.
template <typename Options>
Json options_json(const Options& options) {
  Json config = {{"name", options.name}};
  if constexpr (requires { options.reduction; }) {
    config["reduction"] = kLossReductions.at(static_cast<std::size_t>(options.reduction));
  }
  if constexpr (requires { options.from_logits; }) config["from_logits"] = options.from_logits;
  if constexpr (requires { options.label_smoothing; }) config["label_smoothing"] = options.label_smoothing;
  if constexpr (requires { options.axis; }) config["axis"] = options.axis;
  if constexpr (requires { options.delta; }) config["delta"] = options.delta;
  if constexpr (requires { options.threshold; }) config["threshold"] = options.threshold;
  if constexpr (requires { options.k; }) config["k"] = options.k;
  if constexpr (requires { options.ignore_class; }) {
    config["ignore_class"] = options.ignore_class.has_value() ? Json(*options.ignore_class) : Json();
  }
  return config;
}

// Writes an object if it was made with an Options; null otherwise.
template <typename Options>
Json object_of(const char* module, const char* class_name, const std::any& given) {
  const auto* const options = std::any_cast<Options>(&given);
  return options == nullptr ? Json() : object_json(module, class_name, options_json(*options));
}

Json loss_json(const Loss& loss, const FilePlace& place) {
  constexpr const char* kModule = "keras.losses";
  const std::any& given = loss.rule().options();
  for (const Json& made :
       {object_of<SparseCategoricalCrossentropyOptions>(kModule, "SparseCategoricalCrossentropy", given),
        object_of<CategoricalCrossentropyOptions>(kModule, "CategoricalCrossentropy", given),
        object_of<BinaryCrossentropyOptions>(kModule, "BinaryCrossentropy", given),
        object_of<MeanSquaredErrorOptions>(kModule, "MeanSquaredError", given),
        object_of<MeanAbsoluteErrorOptions>(kModule, "MeanAbsoluteError", given),
        object_of<HuberOptions>(kModule, "Huber", given)}) {
    if (!made.is_null()) return made;
  }
  place.unsupported("Keras' files have no loss \"", loss.name(), "\"");
}

Json metric_json(const Metric& metric, const FilePlace& place) {
  constexpr const char* kModule = "keras.metrics";
  const std::any& given = metric.rule().options();
  // The one that the shapes choose is a name there.
  const bool by_shapes = std::any_cast<AccuracyOptions>(&given) != nullptr;
  if (by_shapes && (metric.name() == "accuracy" || metric.name() == "acc")) return metric.name();
  // Where two metrics have the same options, the rarer one tells its class, too.
  if (const auto* const equal = std::any_cast<std::pair<const char*, AccuracyOptions>>(&given)) {
    return object_json(kModule, equal->first, options_json(equal->second));
  }
  Json top = object_of<TopKAccuracyOptions>(kModule, "SparseTopKCategoricalAccuracy", given);
  if (const auto* const dense = std::any_cast<std::pair<const char*, TopKAccuracyOptions>>(&given)) {
    top = object_json(kModule, dense->first, options_json(dense->second));
  }
  if (!top.is_null()) {
    top["config"]["name"] = metric.name();
    return top;
  }
  for (const Json& made : {object_of<SparseCategoricalAccuracyOptions>(kModule, "SparseCategoricalAccuracy", given),
                           object_of<CategoricalAccuracyOptions>(kModule, "CategoricalAccuracy", given),
                           object_of<BinaryAccuracyOptions>(kModule, "BinaryAccuracy", given),
                           object_of<MeanSquaredErrorOptions>(kModule, "MeanSquaredError", given),
                           object_of<MeanAbsoluteErrorOptions>(kModule, "MeanAbsoluteError", given)}) {
    if (made.is_null()) continue;
    Json object = made;
    object["config"].erase("reduction");
    return object;
  }
  place.unsupported("Keras' files have no metric \"", metric.name(), "\"");
}

Json metrics_json(const std::vector<Metric>& metrics, const FilePlace& place) {
  Json list = Json::array();
  for (const Metric& each : metrics) list.push_back(metric_json(each, place));
  return list;
}

// Fails for what compile() was given and Keras' files cannot say.
void require_said(const CompileOptions& options, const FilePlace& place) {
  if (!options.log_names.empty()) place.unsupported("log_names is not in Keras' files");
  if (options.loss_average != LossAverage::kGlobalBatch) place.unsupported("loss_average is not in Keras' files");
  if (options.eval_run_eagerly.has_value()) place.unsupported("eval_run_eagerly is not in Keras' files");
  if (options.precision != PrecisionPolicy::kFloat32) place.unsupported("a mixed precision is not supported");
}

}  // namespace

Json write_compiled(const CompileOptions& options, const std::vector<std::string>& outputs, const FilePlace& place) {
  require_said(options, place);
  Json config = {{"optimizer", write_keras_optimizer(options.optimizer, place / "optimizer")},
                 {"loss_weights", nullptr},
                 {"metrics", nullptr},
                 {"weighted_metrics", nullptr},
                 {"run_eagerly", options.run_eagerly},
                 {"steps_per_execution", options.steps_per_execution},
                 {"jit_compile", options.jit_compile ? Json(*options.jit_compile) : Json("auto")}};
  if (options.loss.has_value()) config["loss"] = loss_json(*options.loss, place / "loss");
  for (std::size_t i = 0; i < options.losses.size(); ++i) {
    const auto& [name, loss] = options.losses[i];
    const std::string& output = name.empty() && i < outputs.size() ? outputs[i] : name;
    config["loss"][output] = loss.has_value() ? loss_json(*loss, place / "losses") : Json();
  }
  for (const auto& [name, weight] : options.loss_weights) config["loss_weights"][name] = weight;
  if (!options.metrics.empty()) config["metrics"] = metrics_json(options.metrics, place / "metrics");
  if (!options.weighted_metrics.empty()) {
    config["weighted_metrics"] = metrics_json(options.weighted_metrics, place / "weighted_metrics");
  }
  for (const auto& [name, list] : options.output_metrics) {
    config["metrics"][name] = metrics_json(list, place / "output_metrics");
  }
  for (const auto& [name, list] : options.weighted_output_metrics) {
    config["weighted_metrics"][name] = metrics_json(list, place / "weighted_output_metrics");
  }
  return config;
}

}  // namespace cohort
