// Keras' optimizers and Model Garden's against the parameters that TensorFlow had after each of ten steps with given
// gradients.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/cohort.h"
#include "cohort/models.h"
#include "tests/golden/golden.h"
#include "tests/golden/optimizers.h"
#include "tests/golden/schedules.h"

namespace cohort::testing {

namespace {

using nlohmann::json;

// Reads options by Keras' names into those of the same names here, and says which of Keras' had no place.
class Options {
 public:
  explicit Options(const json& given) : given_(given) {}

  template <typename T>
  void take(const char* name, T& into) {
    known_.insert(name);
    if (const auto found = given_.find(name); found != given_.end()) into = found->get<T>();
  }
  void take_rate(Schedule& into) {
    known_.insert("learning_rate");
    const auto found = given_.find("learning_rate");
    if (found == given_.end()) return;
    into = found->is_number() ? Schedule(found->get<double>())
                              : keras_schedule(found->at("class_name"), found->at("config"));
  }
  // Counts as known what has no effect in Keras itself.
  void ignore(const char* name) { known_.insert(name); }

  std::string unknown() const {
    for (const auto& item : given_.items()) {
      if (!known_.contains(item.key())) return "there is no option " + item.key();
    }
    return "";
  }

 private:
  const json& given_;
  std::set<std::string> known_;
};

template <typename T>
void take_common(Options& options, T& into) {
  options.take_rate(into.learning_rate);
  options.take("weight_decay", into.weight_decay);
  options.take("clipnorm", into.gradient.clipnorm);
  options.take("clipvalue", into.gradient.clipvalue);
  options.take("global_clipnorm", into.gradient.global_clipnorm);
  options.take("gradient_accumulation_steps", into.gradient.gradient_accumulation_steps);
  options.take("loss_scale_factor", into.gradient.loss_scale_factor);
  options.take("use_ema", into.ema.use_ema);
  options.take("ema_momentum", into.ema.ema_momentum);
  options.take("ema_overwrite_frequency", into.ema.ema_overwrite_frequency);
}

template <typename T>
void take_moments(Options& options, T& into) {
  options.take("beta_1", into.beta_1);
  options.take("beta_2", into.beta_2);
  if constexpr (requires { into.epsilon; }) options.take("epsilon", into.epsilon);
  if constexpr (requires { into.amsgrad; }) options.take("amsgrad", into.amsgrad);
}

// Makes the optimizer of a case by `make`, whose own options `own` reads.
template <typename T, typename Own>
Optimizer made(const json& golden, Optimizer (*make)(const T&), const Own& own) {
  Options options(golden.at("options"));
  T made_options;
  take_common(options, made_options);
  own(options, made_options);
  if (const auto excluded = golden.find("excluded_from_weight_decay"); excluded != golden.end()) {
    made_options.exclude_from_weight_decay = excluded->get<std::vector<std::string>>();
  }
  if (const std::string unknown = options.unknown(); !unknown.empty()) throw std::runtime_error(unknown);
  return make(made_options);
}

void take_ftrl(Options& options, FtrlOptions& into) {
  options.take("learning_rate_power", into.learning_rate_power);
  options.take("initial_accumulator_value", into.initial_accumulator_value);
  options.take("l1_regularization_strength", into.l1_regularization_strength);
  options.take("l2_regularization_strength", into.l2_regularization_strength);
  options.take("l2_shrinkage_regularization_strength", into.l2_shrinkage_regularization_strength);
  options.take("beta", into.beta);
}

void take_adafactor(Options& options, AdafactorOptions& into) {
  options.take("beta_2_decay", into.beta_2_decay);
  options.take("epsilon_1", into.epsilon_1);
  options.take("epsilon_2", into.epsilon_2);
  options.take("clip_threshold", into.clip_threshold);
  options.ignore("relative_step");
}

void take_rmsprop(Options& options, RmspropOptions& into) {
  options.take("rho", into.rho);
  options.take("momentum", into.momentum);
  options.take("epsilon", into.epsilon);
  options.take("centered", into.centered);
}

}  // namespace

Optimizer keras_optimizer(const json& golden) {
  const auto name = golden.at("optimizer").get<std::string>();
  const auto moments = [](Options& options, auto& into) { take_moments(options, into); };
  if (name == "SGD") {
    return made<SgdOptions>(golden, SGD, [](Options& options, SgdOptions& into) {
      options.take("momentum", into.momentum);
      options.take("nesterov", into.nesterov);
    });
  }
  if (name == "Adam") return made<AdamOptions>(golden, Adam, moments);
  if (name == "AdamW") return made<AdamWOptions>(golden, AdamW, moments);
  if (name == "Adamax") return made<AdamaxOptions>(golden, Adamax, moments);
  if (name == "Nadam") return made<NadamOptions>(golden, Nadam, moments);
  if (name == "Lion") return made<LionOptions>(golden, Lion, moments);
  if (name == "Lamb") return made<LambOptions>(golden, LAMB, moments);
  if (name == "RMSprop") return made<RmspropOptions>(golden, RMSprop, take_rmsprop);
  if (name == "Ftrl") return made<FtrlOptions>(golden, Ftrl, take_ftrl);
  if (name == "Adafactor") return made<AdafactorOptions>(golden, Adafactor, take_adafactor);
  if (name == "Adagrad") {
    return made<AdagradOptions>(golden, Adagrad, [](Options& options, AdagradOptions& into) {
      options.take("initial_accumulator_value", into.initial_accumulator_value);
      options.take("epsilon", into.epsilon);
    });
  }
  if (name == "Adadelta") {
    return made<AdadeltaOptions>(golden, Adadelta, [](Options& options, AdadeltaOptions& into) {
      options.take("rho", into.rho);
      options.take("epsilon", into.epsilon);
    });
  }
  throw std::runtime_error("there is no optimizer " + name);
}

namespace golden_optimizers_test {
namespace {

// The two parameters of a case. The output for a row of gradients is its product with them, whose gradient is the row.
struct PairImpl : torch::nn::Module {
  PairImpl(const json& golden, const std::string& first, const std::string& second, torch::ScalarType dtype)
      : a(golden_tensor(golden.at("a"), dtype)), b(golden_tensor(golden.at("b"), dtype)) {
    register_parameter(first, a);
    register_parameter(second, b);
  }
  torch::Tensor forward(const torch::Tensor& gradients) {
    return gradients.matmul(torch::cat({a.flatten(), b.flatten()}));
  }
  torch::Tensor a, b;
};
TORCH_MODULE(Pair);

std::vector<torch::Tensor> values_of(const torch::nn::Module& module) {
  std::vector<torch::Tensor> values;
  for (const torch::Tensor& each : module.parameters()) values.push_back(each.detach().clone());
  return values;
}

std::string compare(const std::string& when, const std::vector<torch::Tensor>& got, const json& wanted,
                    Tolerance tolerance) {
  if (got.size() != wanted.size()) return c10::str(when, ": ", got.size(), " parameters, wanted ", wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string text =
        difference(c10::str(when, ", parameter ", i), got[i].to(torch::kDouble), golden_tensor(wanted[i]), tolerance);
    if (!text.empty()) return text;
  }
  return "";
}

// Applies the gradients of a case, and gives after each step the parameters to `after`, until it finds a difference.
template <typename After>
std::string train(const json& golden, const Strategy& strategy, const Mirrored<Pair>& net,
                  const MirroredOptimizer& optimizer, torch::ScalarType dtype, const After& after) {
  for (std::size_t step = 0; step < golden.at("gradients").size(); ++step) {
    const json& gradients = golden.at("gradients")[step];
    strategy.run([&](Replica& replica) {
      optimizer[replica].apply_gradients({golden_tensor(gradients[0], dtype), golden_tensor(gradients[1], dtype)},
                                         /*reduced=*/true);
    });
    if (const std::string text = after(step); !text.empty()) return text;
  }
  return "";
}

std::string check_keras(const json& golden) {
  const Tolerance tolerance{.absolute = 1e-5, .relative = 1e-5};
  for (const int replicas : {1, 2}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const auto net = strategy.mirror([&] { return Pair(golden, "a", "b", torch::kDouble); });
    const auto optimizer = strategy.optimizer(net, keras_optimizer(golden));
    const auto after = [&](std::size_t step) {
      return compare(c10::str("step ", step), values_of(*net[0]), golden.at("after_each_step")[step], tolerance);
    };
    if (const std::string text = train(golden, strategy, net, optimizer, torch::kDouble, after); !text.empty()) {
      return text;
    }
    const auto last = golden.find("after_finalize_variable_values");
    if (last == golden.end()) continue;
    optimizer.finalize_variable_values();
    if (const std::string text = compare("at the end", values_of(*net[0]), *last, tolerance); !text.empty()) {
      return text;
    }
  }
  return "";
}

OptimizerConfig model_garden_config(const json& golden) {
  OptimizerConfig made_config;
  Config config([&](ConfigFields& fields) { made_config.describe(fields); });
  config.apply_yaml(golden.at("config").dump(), "the case");
  // This is not a key of Model Garden's, but an argument of its factory.
  if (!golden.value("legacy", true)) config.set("optimizer.formulation", "keras", "the case");
  config.lock();
  return made_config;
}

// Model Garden's averages are the trainer's: it trains on rows of gradients, and the loss is the model's output.
std::string check_averages(const json& golden, const OptimizerConfig& config, Tolerance tolerance) {
  std::vector<torch::Tensor> rows;
  for (const json& gradients : golden.at("gradients")) {
    rows.push_back(torch::cat(
        {golden_tensor(gradients[0], torch::kFloat).flatten(), golden_tensor(gradients[1], torch::kFloat).flatten()}));
  }
  const auto steps = static_cast<int64_t>(rows.size());
  const OneDeviceStrategy strategy("/CPU:0");
  const auto scope = strategy.scope();
  Model model([&] { return Pair(golden, "kernel", "bias", torch::kFloat); });
  model.compile({.optimizer = config.build(steps, 1),
                 .loss = Loss("output", [](const torch::Tensor&, const torch::Tensor& output) { return output; })});
  MovingAverageOptions averages = config.averages();
  ModelTrainer trainer(
      model, {.train = Dataset::from_tensor_slices({.x = torch::stack(rows), .y = torch::zeros(steps)}).batch(1),
              .ema = averages,
              .verbose = Verbose::kSilent});
  for (int64_t step = 0; step < steps; ++step) {
    trainer.train(1);
    std::vector<torch::Tensor> got = values_of(*model.module().copies().front());
    trainer.with_averages([&] {
      for (torch::Tensor& each : values_of(*model.module().copies().front())) got.push_back(std::move(each));
    });
    const json& wanted = golden.at("after_each_step")[static_cast<std::size_t>(step)];
    if (const std::string text = compare(c10::str("step ", step), got, wanted, tolerance); !text.empty()) return text;
  }
  return "";
}

std::string check_model_garden(const json& golden) {
  const Tolerance tolerance{.absolute = 1e-4, .relative = 1e-4};
  const OptimizerConfig config = model_garden_config(golden);
  if (golden.contains("columns")) return check_averages(golden, config, tolerance);
  const OneDeviceStrategy strategy("/CPU:0");
  const auto net = strategy.mirror([&] { return Pair(golden, "kernel", "bias", torch::kFloat); });
  const auto steps = static_cast<int64_t>(golden.at("gradients").size());
  const auto optimizer = strategy.optimizer(net, config.build(steps, 1));
  return train(golden, strategy, net, optimizer, torch::kFloat, [&](std::size_t step) {
    return compare(c10::str("step ", step), values_of(*net[0]), golden.at("after_each_step")[step], tolerance);
  });
}

TEST(GoldenOptimizers, OfKeras) {
  check_golden("optimizers_keras3.json", check_keras);
}

TEST(GoldenOptimizers, OfModelGarden) {
  check_golden("optimizers_model_garden.json", check_model_garden);
}

}  // namespace
}  // namespace golden_optimizers_test

}  // namespace cohort::testing
