// The objects of optimizers and schedules. Each option is named once, for both directions.
#include "wings/keras/train/optimizers.h"

#include <algorithm>

#include "base/extension.h"
#include "optimizer/rules/optimizer_row.h"
#include "optimizer/update_rule.h"
#include "wings/keras/train/taken_options.h"
#include "wings/keras/train/values.h"

namespace cohort {

namespace {

// Calls visit with the name and the maker of each schedule.
template <typename Visit>
void each_schedule(const Visit& visit) {
  visit("ExponentialDecay", ExponentialDecay);
  visit("PiecewiseConstantDecay", PiecewiseConstantDecay);
  visit("PolynomialDecay", PolynomialDecay);
  visit("InverseTimeDecay", InverseTimeDecay);
  visit("CosineDecay", CosineDecay);
  visit("CosineDecayRestarts", CosineDecayRestarts);
}

// Calls visit with the name and the field of each option of a schedule.
template <typename Options, typename Visit>
void each_schedule_option(Options& o, const Visit& visit) {
  if constexpr (requires { o.initial_learning_rate; }) visit("initial_learning_rate", o.initial_learning_rate);
  if constexpr (requires { o.decay_steps; }) visit("decay_steps", o.decay_steps);
  if constexpr (requires { o.first_decay_steps; }) visit("first_decay_steps", o.first_decay_steps);
  if constexpr (requires { o.decay_rate; }) visit("decay_rate", o.decay_rate);
  if constexpr (requires { o.staircase; }) visit("staircase", o.staircase);
  if constexpr (requires { o.alpha; }) visit("alpha", o.alpha);
  if constexpr (requires { o.warmup_target; }) visit("warmup_target", o.warmup_target);
  if constexpr (requires { o.warmup_steps; }) visit("warmup_steps", o.warmup_steps);
  if constexpr (requires { o.t_mul; }) visit("t_mul", o.t_mul);
  if constexpr (requires { o.m_mul; }) visit("m_mul", o.m_mul);
  if constexpr (requires { o.end_learning_rate; }) visit("end_learning_rate", o.end_learning_rate);
  if constexpr (requires { o.power; }) visit("power", o.power);
  if constexpr (requires { o.cycle; }) visit("cycle", o.cycle);
  if constexpr (requires { o.boundaries; }) visit("boundaries", o.boundaries);
  if constexpr (requires { o.values; }) visit("values", o.values);
}

// Takes options into their fields. What a file leaves out keeps its default.
struct ReadOption {
  TakenOptions& given;

  void operator()(const char* name, double& field) const { field = given.number(name, field); }
  void operator()(const char* name, int64_t& field) const { field = given.whole(name, field); }
  void operator()(const char* name, bool& field) const { field = given.flag(name, field); }
  void operator()(const char* name, std::optional<double>& field) const {
    const Json value = given.take(name);
    if (value.is_null()) return;
    if (!value.is_number()) given.place().unsupported(name, " = ", brief(value), " is not supported, only a number");
    field = value.get<double>();
  }
  template <typename Number>
  void operator()(const char* name, std::vector<Number>& field) const {
    const Json value = given.take(name);
    for (const Json& each : value.is_array() ? value : Json::array({value})) {
      const bool fits = std::is_integral_v<Number> ? each.is_number_integer() : each.is_number();
      if (!fits) given.place().unsupported(name, " = ", brief(value), " is not supported, only a list of numbers");
      field.push_back(each.get<Number>());
    }
  }
};

Schedule read_schedule(const Json& value, const FilePlace& place) {
  if (value.is_number()) return value.get<double>();
  const KerasObject object = keras_object(value, place);
  TakenOptions given(object.config, place / object.class_name);
  given.take("name");
  std::optional<Schedule> schedule;
  each_schedule([&]<typename Options>(const char* name, Schedule (*make)(const Options&)) {
    if (object.class_name != name) return;
    Options options;
    each_schedule_option(options, ReadOption{given});
    given.end();
    schedule = make(options);
  });
  if (!schedule) place.unsupported("the schedule ", brief(object.class_name), " is not supported");
  return *schedule;
}

Json write_schedule(const Schedule& schedule, const FilePlace& place) {
  if (schedule.is_constant()) return schedule(0);
  Json object;
  each_schedule([&]<typename Options>(const char* class_name, Schedule (*)(const Options&)) {
    const auto* const options = std::any_cast<Options>(&schedule.options());
    if (options == nullptr) return;
    Json config = {{"name", class_name}};
    each_schedule_option(*options, [&](const char* name, const auto& field) {
      if constexpr (requires { field.has_value(); }) {
        config[name] = field.has_value() ? Json(*field) : Json();
      } else {
        config[name] = field;
      }
    });
    object = object_json("keras.optimizers.schedules", class_name, std::move(config));
  });
  if (object.is_null()) place.unsupported(schedule.name(), " is not in Keras' files as a schedule");
  return object;
}

// Returns the optimizers that files may name.
std::vector<OptimizerRow> optimizer_rows() {
  std::vector<OptimizerRow> rows = {optimizer_row<SgdOptions>("SGD", SGD), optimizer_row<AdamOptions>("Adam", Adam),
                                    optimizer_row<AdamWOptions>("AdamW", AdamW),
                                    optimizer_row<RmspropOptions>("RMSprop", RMSprop),
                                    optimizer_row<AdagradOptions>("Adagrad", Adagrad)};
  const std::vector<OptimizerRow>& more = extensions<OptimizerRow>();
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

// Calls visit with the name and the field of each option of an optimizer, but for the rate.
template <typename Visit>
void each_optimizer_option(const OptionFields& fields, const Visit& visit) {
  for (const auto& [name, field] : fields) {
    const std::string text(name);
    if (const auto* const number = std::get_if<double*>(&field)) visit(text.c_str(), **number);
    if (const auto* const flag = std::get_if<bool*>(&field)) visit(text.c_str(), **flag);
    if (const auto* const gradient = std::get_if<GradientOptions*>(&field)) {
      visit("clipnorm", (*gradient)->clipnorm);
      visit("global_clipnorm", (*gradient)->global_clipnorm);
      visit("clipvalue", (*gradient)->clipvalue);
      visit("loss_scale_factor", (*gradient)->loss_scale_factor);
      visit("gradient_accumulation_steps", (*gradient)->gradient_accumulation_steps);
    }
    if (const auto* const ema = std::get_if<EmaOptions*>(&field)) {
      visit("use_ema", (*ema)->use_ema);
      visit("ema_momentum", (*ema)->ema_momentum);
      visit("ema_overwrite_frequency", (*ema)->ema_overwrite_frequency);
    }
  }
}

template <typename Field>
Field& field_named(const OptionFields& fields, std::string_view wanted) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& each) { return each.first == wanted; });
  return *std::get<Field*>(found->second);
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

}  // namespace

Optimizer read_keras_optimizer(const Json& value, const FilePlace& place) {
  const KerasObject object = keras_object(value, place);
  TakenOptions given(object.config, place / object.class_name);
  given.take("name");
  if (object.class_name == "LossScaleOptimizer") {
    const Optimizer inner = read_keras_optimizer(given.take("inner_optimizer"), given.place() / "inner_optimizer");
    if (inner.gradient().loss_scale) place.unsupported("a LossScaleOptimizer in another one is not supported");
    const double scale = given.number("initial_scale", 32768.0);
    const int64_t steps = given.whole("dynamic_growth_steps", 2000);
    given.end();
    return LossScaleOptimizer(inner, {.initial_scale = scale, .growth_steps = steps});
  }
  std::string known;
  for (const OptimizerRow& row : optimizer_rows()) {
    known.append(known.empty() ? "" : ", ").append(row.name);
    if (object.class_name != row.name) continue;
    std::any options = row.options;
    const OptionFields fields = row.fields(options);
    field_named<Schedule>(fields, "learning_rate") =
        read_schedule(given.take("learning_rate"), given.place() / "learning_rate");
    field_named<double>(fields, "weight_decay") = 0.0;  // null is none
    each_optimizer_option(fields, ReadOption{given});
    given.end();
    return row.make(options);
  }
  place.unsupported("the optimizer ", brief(object.class_name), " is not supported; there are ", known);
}

Json write_keras_optimizer(const Optimizer& optimizer, const FilePlace& place) {
  for (const OptimizerRow& row : optimizer_rows()) {
    std::any options = optimizer.rule().options;
    OptionFields fields;
    try {
      fields = row.fields(options);
    } catch (const NotFound& error) {
      place.unsupported("has no place in Keras' files: ", error.what());
    }
    if (fields.empty()) continue;
    GradientOptions& gradient = field_named<GradientOptions>(fields, "gradient");
    gradient = optimizer.gradient();  // which may have changed
    if (gradient.l2 != 0.0) place.unsupported("gradient.l2 is not in Keras' files");
    Json config = {{"learning_rate", write_schedule(optimizer.learning_rate(), place / "learning_rate")}};
    each_optimizer_option(fields, [&](const std::string& name, const auto& field) { config[name] = field; });
    // Keras has no number where there is no such step.
    for (const char* const name :
         {"weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "loss_scale_factor", "ema_overwrite_frequency"}) {
      if (config[name] == 0) config[name] = nullptr;
    }
    if (gradient.gradient_accumulation_steps == 1) config["gradient_accumulation_steps"] = nullptr;
    const Json object = object_json("keras.optimizers", std::string(row.name), std::move(config));
    return with_loss_scale(object, gradient.loss_scale, place);
  }
  place.unsupported("Keras' files have no optimizer \"", optimizer.name(), "\"");
}

double number_of_optimizer(const Optimizer& optimizer, std::string_view name) {
  std::any options = optimizer.rule().options;
  for (const OptimizerRow& row : optimizer_rows()) {
    const OptionFields fields = row.fields(options);
    if (!fields.empty()) return field_named<double>(fields, name);
  }
  return 0.0;
}

}  // namespace cohort
