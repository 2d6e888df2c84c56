// Keras' and Model Garden's learning rates against TensorFlow's at given steps.
#include "tests/golden/schedules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cohort/models.h"
#include "tests/golden/golden.h"

namespace cohort::testing {

namespace {

using nlohmann::json;

// Keras and Model Garden compute in float32.
constexpr Tolerance kTolerance{.absolute = 1e-9, .relative = 1e-4};

template <typename T>
void take(json& options, const char* name, T& into) {
  const auto found = options.find(name);
  if (found == options.end()) return;
  if (!found->is_null()) into = found->get<T>();
  options.erase(found);
}

// Makes a schedule of what `read` takes out of the options; all of them have to be known.
template <typename T, typename Read>
Schedule made(json options, Schedule (*make)(const T&), const Read& read) {
  T into;
  if constexpr (requires { into.initial_learning_rate; }) {
    take(options, "initial_learning_rate", into.initial_learning_rate);
  }
  if constexpr (requires { into.decay_steps; }) take(options, "decay_steps", into.decay_steps);
  read(options, into);
  options.erase("name");
  if (!options.empty()) throw std::runtime_error("there is no option " + options.items().begin().key());
  return make(into);
}

// Compares at all steps of a case. A rate that is no number in TensorFlow is one here.
std::string check(const json& golden, const Schedule& schedule) {
  for (std::size_t i = 0; i < golden.at("steps").size(); ++i) {
    const auto step = golden.at("steps")[i].get<int64_t>();
    const double wanted = golden_number(golden.at("values")[i]);
    const double rate = schedule(step);
    if (std::isnan(wanted)) {
      if (!std::isfinite(rate) || rate < 0.0) return c10::str("the rate of step ", step, " is ", rate);
      continue;
    }
    // Float32 has some 1e-9 instead of 0 where a cosine ends.
    const std::string text = difference(c10::str("the rate of step ", step), rate, wanted, kTolerance);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

Schedule keras_schedule(const std::string& name, const json& options) {
  const auto take_decay = [](json& o, auto& into) {
    take(o, "decay_rate", into.decay_rate);
    take(o, "staircase", into.staircase);
  };
  if (name == "ExponentialDecay") return made<ExponentialDecayOptions>(options, ExponentialDecay, take_decay);
  if (name == "InverseTimeDecay") return made<InverseTimeDecayOptions>(options, InverseTimeDecay, take_decay);
  if (name == "PiecewiseConstantDecay") {
    return made<PiecewiseConstantDecayOptions>(options, PiecewiseConstantDecay, [](json& o, auto& into) {
      take(o, "boundaries", into.boundaries);
      take(o, "values", into.values);
    });
  }
  if (name == "PolynomialDecay") {
    return made<PolynomialDecayOptions>(options, PolynomialDecay, [](json& o, auto& into) {
      take(o, "end_learning_rate", into.end_learning_rate);
      take(o, "power", into.power);
      take(o, "cycle", into.cycle);
    });
  }
  if (name == "CosineDecay") {
    return made<CosineDecayOptions>(options, CosineDecay, [](json& o, auto& into) {
      take(o, "alpha", into.alpha);
      if (o.contains("warmup_target") && o.at("warmup_target").is_number()) into.warmup_target.emplace();
      if (into.warmup_target) take(o, "warmup_target", *into.warmup_target);
      o.erase("warmup_target");
      take(o, "warmup_steps", into.warmup_steps);
    });
  }
  if (name == "CosineDecayRestarts") {
    return made<CosineDecayRestartsOptions>(options, CosineDecayRestarts, [](json& o, auto& into) {
      take(o, "first_decay_steps", into.first_decay_steps);
      take(o, "t_mul", into.t_mul);
      take(o, "m_mul", into.m_mul);
      take(o, "alpha", into.alpha);
    });
  }
  throw std::runtime_error("there is no schedule " + name);
}

namespace golden_schedules_test {
namespace {

TEST(GoldenSchedules, OfKeras) {
  check_golden("schedules_keras3.json", [](const json& golden) {
    return check(golden, keras_schedule(golden.at("schedule"), golden.at("options")));
  });
}

TEST(GoldenSchedules, OfModelGarden) {
  check_golden("schedules_model_garden.json", [](const json& golden) {
    OptimizerConfig made_config;
    Config config([&](ConfigFields& fields) { made_config.describe(fields); });
    config.apply_yaml(golden.at("config").dump(), "the case");
    config.lock();
    return check(golden, made_config.build(/*train_steps=*/100, /*replicas=*/1).learning_rate());
  });
}

}  // namespace
}  // namespace golden_schedules_test

}  // namespace cohort::testing
