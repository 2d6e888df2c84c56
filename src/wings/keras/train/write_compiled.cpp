#include "wings/keras/train/write_compiled.h"

#include <array>

#include "optimizer/update_rule.h"
#include "wings/keras/train/compiled.h"
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

Json number_or_null(double number) {
  return number == 0.0 ? Json() : Json(number);
}

// Writes an optimizer if it was made with an Options; null otherwise.
template <typename Options>
Json optimizer_of(const char* class_name, const Optimizer& optimizer, const FilePlace& place) {
  const auto* const options = std::any_cast<Options>(&optimizer.rule().options);
  if (options == nullptr) return {};
  const GradientOptions& gradient = optimizer.gradient();
  if (options->formulation != Formulation::kKeras) place.unsupported("the formulation is not Keras'");
  if (!options->exclude_from_weight_decay.empty())
    place.unsupported("exclude_from_weight_decay is not in Keras' files");
  if (gradient.l2 != 0.0) place.unsupported("gradient.l2 is not in Keras' files");
  if (!optimizer.learning_rate().is_constant()) {
    place.unsupported("the learning rate is ", optimizer.learning_rate().name(), ", and only a number is supported");
  }
  const bool averages = options->ema.ema_overwrite_frequency != 0;
  Json config = {{"learning_rate", optimizer.learning_rate()(0)},
                 {"weight_decay", number_or_null(options->weight_decay)},
                 {"clipnorm", number_or_null(gradient.clipnorm)},
                 {"global_clipnorm", number_or_null(gradient.global_clipnorm)},
                 {"clipvalue", number_or_null(gradient.clipvalue)},
                 {"use_ema", options->ema.use_ema},
                 {"ema_momentum", options->ema.ema_momentum},
                 {"ema_overwrite_frequency", averages ? Json(options->ema.ema_overwrite_frequency) : Json()},
                 {"loss_scale_factor", number_or_null(gradient.loss_scale_factor)},
                 {"gradient_accumulation_steps", nullptr}};
  if (gradient.gradient_accumulation_steps != 1) {
    config["gradient_accumulation_steps"] = gradient.gradient_accumulation_steps;
  }
  if constexpr (requires { options->epsilon; }) config["epsilon"] = options->epsilon;
  if constexpr (requires { options->beta_1; }) {
    config["beta_1"] = options->beta_1;
    config["beta_2"] = options->beta_2;
    config["amsgrad"] = options->amsgrad;
  }
  if constexpr (requires { options->momentum; }) config["momentum"] = options->momentum;
  if constexpr (requires { options->nesterov; }) config["nesterov"] = options->nesterov;
  if constexpr (requires { options->rho; }) config["rho"] = options->rho;
  if constexpr (requires { options->centered; }) config["centered"] = options->centered;
  if constexpr (requires { options->initial_accumulator_value; }) {
    config["initial_accumulator_value"] = options->initial_accumulator_value;
  }
  return object_json("keras.optimizers", class_name, std::move(config));
}

// Puts a LossScaleOptimizer around an optimizer that scales the loss.
Json with_loss_scale(const Json& optimizer, const std::optional<LossScale>& scale, const FilePlace& place) {
  if (!scale) return optimizer;
  if (!scale->dynamic) place.unsupported("a loss scale that stays is not in Keras' files");
  return object_json("keras.optimizers", "LossScaleOptimizer",
                     {{"name", "loss_scale_optimizer"},
                      {"inner_optimizer", optimizer},
                      {"initial_scale", scale->initial_scale},
                      {"dynamic_growth_steps", scale->growth_steps}});
}

Json optimizer_json(const Optimizer& optimizer, const FilePlace& place) {
  for (const Json& made :
       {optimizer_of<SgdOptions>("SGD", optimizer, place), optimizer_of<AdamOptions>("Adam", optimizer, place),
        optimizer_of<AdamWOptions>("AdamW", optimizer, place),
        optimizer_of<RmspropOptions>("RMSprop", optimizer, place),
        optimizer_of<AdagradOptions>("Adagrad", optimizer, place)}) {
    if (!made.is_null()) return with_loss_scale(made, optimizer.gradient().loss_scale, place);
  }
  place.unsupported("Keras' files have no optimizer \"", optimizer.name(), "\"");
}

// Fails for what compile() was given and Keras' files cannot say.
void require_said(const CompileOptions& options, const FilePlace& place) {
  if (!options.log_names.empty()) place.unsupported("log_names is not in Keras' files");
  if (options.loss_average != LossAverage::kGlobalBatch) place.unsupported("loss_average is not in Keras' files");
  if (options.eval_run_eagerly.has_value()) place.unsupported("eval_run_eagerly is not in Keras' files");
  if (options.precision != PrecisionPolicy::kFloat32) place.unsupported("a mixed precision is not supported");
}

// Adds the variables of a LossScaleOptimizer, which has those of the one in it, too. Its own iterations and rate are 0.
void add_own_variables(NamedTensors& variables, const std::map<std::string, torch::Tensor>& state) {
  NamedTensors all = {{"", torch::zeros({}, torch::kLong)},
                      {"", torch::zeros({}, torch::kFloat)},
                      {"", state.at("good_steps").to(torch::kLong).reshape({})},
                      {"", state.at("loss_scale").to(torch::kFloat).reshape({})}};
  all.insert(all.end(), variables.begin(), variables.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    variables.emplace_back("optimizer/vars/" + std::to_string(i), all[i].second);
  }
}

}  // namespace

Json write_compiled(const CompileOptions& options, const std::vector<std::string>& outputs, const FilePlace& place) {
  require_said(options, place);
  Json config = {{"optimizer", optimizer_json(options.optimizer, place / "optimizer")},
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

NamedTensors write_optimizer(const Model& model, const std::vector<BoundWeight>& weights, const FilePlace& place) {
  const MirroredOptimizer& optimizer = model.optimizer();
  if (optimizer.rule().gradient().gradient_accumulation_steps != 1) {
    place.unsupported("the state of an optimizer with gradient_accumulation_steps is not supported");
  }
  std::map<std::string, torch::Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) state[name] = tensor;
  NamedTensors variables;
  const auto add = [&](const torch::Tensor& value) {
    variables.emplace_back(variables_of(optimizer.rule()) + std::to_string(variables.size()), value);
  };
  add(state.at("iterations").to(torch::kLong).reshape({}));
  add(torch::scalar_tensor(optimizer.learning_rate(), torch::kFloat));
  const SlotOrder order = slot_order(optimizer.rule());
  for (const auto& group : order.groups) {
    for (const BoundWeight& weight : learning_weights(optimizer, weights)) {
      for (const char* const slot : group) {
        const double sign = order.is_negative && std::string_view(slot) == "momentum" ? -1.0 : 1.0;
        const auto of = [&](const std::string& name) {
          return name.empty() ? torch::Tensor() : state.at(name + "/" + slot) * sign;
        };
        add(to_file(weight.layout, weight.parts, of(weight.first), of(weight.second)));
      }
    }
  }
  if (optimizer.rule().gradient().loss_scale) add_own_variables(variables, state);
  return variables;
}

}  // namespace cohort
