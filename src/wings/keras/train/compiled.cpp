#include "wings/keras/train/compiled.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "optimizer/update_rule.h"
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

// Takes the options that all optimizers have.
template <typename Options>
Options optimizer_options(TakenOptions& given) {
  Options options;
  given.take("name");
  const Json rate = given.take("learning_rate");
  if (!rate.is_number())
    given.place().unsupported("the learning rate ", brief(rate), " is not supported, only a number");
  options.learning_rate = rate.get<double>();
  options.weight_decay = given.number("weight_decay", 0.0);
  options.gradient.clipnorm = given.number("clipnorm", 0.0);
  options.gradient.global_clipnorm = given.number("global_clipnorm", 0.0);
  options.gradient.clipvalue = given.number("clipvalue", 0.0);
  options.gradient.loss_scale_factor = given.number("loss_scale_factor", 0.0);
  options.gradient.gradient_accumulation_steps = given.whole("gradient_accumulation_steps", 1);
  options.ema.use_ema = given.flag("use_ema", false);
  options.ema.ema_momentum = given.number("ema_momentum", 0.99);
  options.ema.ema_overwrite_frequency = given.whole("ema_overwrite_frequency", 0);
  if constexpr (requires { options.epsilon; }) options.epsilon = given.number("epsilon", options.epsilon);
  if constexpr (requires { options.beta_1; }) {
    options.beta_1 = given.number("beta_1", options.beta_1);
    options.beta_2 = given.number("beta_2", options.beta_2);
    options.amsgrad = given.flag("amsgrad", false);
  }
  if constexpr (requires { options.momentum; }) options.momentum = given.number("momentum", 0.0);
  if constexpr (requires { options.nesterov; }) options.nesterov = given.flag("nesterov", false);
  if constexpr (requires { options.rho; }) options.rho = given.number("rho", options.rho);
  if constexpr (requires { options.centered; }) options.centered = given.flag("centered", false);
  if constexpr (requires { options.initial_accumulator_value; }) {
    options.initial_accumulator_value = given.number("initial_accumulator_value", options.initial_accumulator_value);
  }
  return options;
}

Optimizer optimizer_of(const Json& value, const FilePlace& place) {
  const KerasObject object = keras_object(value, place);
  const std::string& name = object.class_name;
  TakenOptions options(object.config, place / name);
  const auto made = [&]() -> std::optional<Optimizer> {
    if (name == "SGD") return SGD(optimizer_options<SgdOptions>(options));
    if (name == "Adam") return Adam(optimizer_options<AdamOptions>(options));
    if (name == "AdamW") return AdamW(optimizer_options<AdamWOptions>(options));
    if (name == "RMSprop") return RMSprop(optimizer_options<RmspropOptions>(options));
    if (name == "Adagrad") return Adagrad(optimizer_options<AdagradOptions>(options));
    if (name == "LossScaleOptimizer") {
      options.take("name");
      const Optimizer inner = optimizer_of(options.take("inner_optimizer"), options.place() / "inner_optimizer");
      if (inner.gradient().loss_scale) place.unsupported("a LossScaleOptimizer in another one is not supported");
      const double scale = options.number("initial_scale", 32768.0);
      return LossScaleOptimizer(inner,
                                {.initial_scale = scale, .growth_steps = options.whole("dynamic_growth_steps", 2000)});
    }
    return std::nullopt;
  };
  std::optional<Optimizer> optimizer = made();
  if (!optimizer.has_value()) place.unsupported("the optimizer ", brief(name), " is not supported");
  options.end();
  return *optimizer;
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

SlotOrder slot_order(const Optimizer& optimizer) {
  SlotOrder order{.is_negative = optimizer.name() == "SGD"};
  const std::vector<std::string>& slots = optimizer.rule().slots();
  const auto has = [&](const char* slot) { return std::find(slots.begin(), slots.end(), slot) != slots.end(); };
  if (has("average")) order.groups.push_back({"average"});
  if (has("exp_avg")) {
    order.groups.push_back({"exp_avg", "exp_avg_sq"});
    if (has("max_exp_avg_sq")) order.groups.push_back({"max_exp_avg_sq"});
  }
  for (const char* const slot : {"square_avg", "sum", "momentum", "grad_avg"}) {
    if (has(slot)) order.groups.push_back({slot});
  }
  return order;
}

std::vector<BoundWeight> learning_weights(const MirroredOptimizer& optimizer, const std::vector<BoundWeight>& weights) {
  std::vector<BoundWeight> learning;
  const std::vector<std::string>& names = optimizer.parameter_names();
  for (const BoundWeight& each : weights) {
    if (std::find(names.begin(), names.end(), each.first) != names.end()) learning.push_back(each);
  }
  return learning;
}

std::optional<CompileOptions> compile_options(const Json& config, const std::vector<std::string>& outputs,
                                              const FilePlace& place) {
  if (config.is_null() || (config.is_object() && config.empty())) return std::nullopt;
  TakenOptions given(config, place);
  const Json optimizer = given.take("optimizer");
  const Json loss = given.take("loss");
  if (loss.is_null()) place.unsupported("a model that was compiled without a loss is not supported");
  CompileOptions options{.optimizer = optimizer_of(optimizer, place / "optimizer")};
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

namespace {

// Adds the state of a LossScaleOptimizer to that of the optimizer in it.
void add_loss_scale(NamedTensors& state, const std::map<std::string, torch::Tensor>& file, const FilePlace& place) {
  const auto number = [&](const char* path) {
    const auto found = file.find(path);
    if (found == file.end() || found->second.numel() != 1) (place / path).damaged("is not there, or not one number");
    return found->second.to(torch::kDouble).item<double>();
  };
  const double steps = number("optimizer/vars/2"), scale = number("optimizer/vars/3");
  if (!(steps >= 0.0 && scale > 0.0 && std::isfinite(steps) && std::isfinite(scale))) {
    place.damaged("the loss scale is ", scale, " since ", steps, " steps, wanted positive numbers");
  }
  state.emplace_back("loss_scale", torch::scalar_tensor(scale, torch::kDouble));
  state.emplace_back("good_steps", torch::scalar_tensor(static_cast<int64_t>(steps), torch::kLong));
}

}  // namespace

std::string variables_of(const Optimizer& optimizer) {
  return optimizer.gradient().loss_scale ? "optimizer/inner_optimizer/vars/" : "optimizer/vars/";
}

void load_optimizer(const Model& model, const std::map<std::string, torch::Tensor>& file,
                    const std::vector<BoundWeight>& weights, const FilePlace& place) {
  const MirroredOptimizer& optimizer = model.optimizer();
  const std::string group_in_file = variables_of(optimizer.rule());
  const auto variable = [&](std::size_t index) -> const torch::Tensor* {
    const auto found = file.find(group_in_file + std::to_string(index));
    return found == file.end() ? nullptr : &found->second;
  };
  std::size_t count = 0;
  while (variable(count) != nullptr) ++count;
  if (count < 2 || variable(0)->numel() != 1 || variable(1)->numel() != 1) {
    place.damaged("there are ", count, " variables, wanted iterations, the rate and what the rule keeps");
  }
  const auto iterations = variable(0)->to(torch::kLong).item<int64_t>();
  if (count == 2 && iterations == 0) return;  // it was never trained
  if (optimizer.rule().gradient().gradient_accumulation_steps != 1) {
    place.unsupported("the state of an optimizer with gradient_accumulation_steps is not supported");
  }
  const std::vector<BoundWeight> learning = learning_weights(optimizer, weights);
  const SlotOrder order = slot_order(optimizer.rule());
  std::size_t wanted = 2;
  for (const auto& group : order.groups) wanted += group.size() * learning.size();
  if (count != wanted) place.damaged("there are ", count, " variables, wanted ", wanted, " for the model");
  std::map<std::string, torch::Tensor> ours;
  for (const auto& [name, tensor] : model.weights()) ours[name] = tensor;
  NamedTensors state = {{"iterations", torch::scalar_tensor(iterations, torch::kLong)}};
  std::size_t next = 2;
  for (const auto& group : order.groups) {
    for (const BoundWeight& weight : learning) {
      for (const char* const slot : group) {
        const FilePlace here = place / (group_in_file + std::to_string(next));
        std::vector<torch::Tensor> values = from_file(weight, *variable(next++), ours.at(weight.first), here);
        if (order.is_negative && std::string_view(slot) == "momentum") {
          for (torch::Tensor& value : values) value = value.neg();
        }
        state.emplace_back(weight.first + "/" + slot, values.front());
        if (values.size() > 1) state.emplace_back(weight.second + "/" + slot, values.back());
      }
    }
  }
  if (optimizer.rule().gradient().loss_scale) add_loss_scale(state, file, place);
  const auto rate = variable(1)->to(torch::kDouble).item<double>();
  // The file has both: the rate of the options, and what has become of it.
  if (static_cast<float>(optimizer.learning_rate()) != static_cast<float>(rate)) {
    state.emplace_back("learning_rate", torch::scalar_tensor(rate, torch::kDouble));
  }
  optimizer.load_state(state);
}

}  // namespace cohort
