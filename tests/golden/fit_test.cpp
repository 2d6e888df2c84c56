// fit() as Keras 3 and Keras 2 do it: history, evaluation, predictions and final weights of a small network.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "cohort/dataset.h"
#include "cohort/train/model.h"
#include "tests/golden/golden.h"
#include "tests/golden/optimizers.h"

namespace cohort::testing::fit_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

struct Network {
  int64_t outputs = 1;
  double l2 = 0.0;
};

Sequential network_of(const Network& network) {
  const auto layer = [&](int64_t units, const Activation& activation) {
    return Dense({.units = units,
                  .activation = activation,
                  .kernel_regularizer = network.l2 == 0.0 ? Regularizer() : Regularizer::l2(network.l2)});
  };
  // The kernels of the hidden layers alone have a penalty.
  Sequential model({layer(5, Activation::kRelu), layer(4, Activation::kTanh), Dense(network.outputs)},
                   {.dtype = torch::kDouble});
  model.build({4});
  return model;
}

// Kernels are [inputs, outputs] in Keras, and [outputs, inputs] here.
void set_keras_weights(const Sequential& model, const json& weights) {
  NamedTensors named = model.weights();
  for (std::size_t i = 0; i < named.size(); ++i) {
    const torch::Tensor value = golden_tensor(weights.at(i));
    named[i].second = value.dim() == 2 ? value.t().contiguous() : value;
  }
  model.set_weights(named);
}

// Keras casts Adam's decays to float32 where it corrects the bias, and only there. This rate corrects for it.
Schedule rate_of_keras_adam(double rate, double beta_1, double beta_2) {
  return {"rate", [=](int64_t step) {
            const auto correction = [t = static_cast<double>(step + 1)](double one, double two) {
              return std::sqrt(1.0 - std::pow(two, t)) / (1.0 - std::pow(one, t));
            };
            return static_cast<float>(rate) * correction(static_cast<float>(beta_1), static_cast<float>(beta_2)) /
                   correction(beta_1, beta_2);
          }};
}

Optimizer optimizer_of(const json& golden) {
  const json& options = golden.at("options");
  const std::string name = golden.at("optimizer");
  const Optimizer made = keras_optimizer(golden);
  if ((name != "Adam" && name != "AdamW") || !options.at("learning_rate").is_number()) return made;
  const Schedule rate =
      rate_of_keras_adam(options.at("learning_rate"), options.value("beta_1", 0.9), options.value("beta_2", 0.999));
  return {made.shared_rule(), rate, made.gradient()};
}

Dataset batches(const json& golden, const torch::Tensor& x, const torch::Tensor& y) {
  const torch::Tensor weight =
      golden.contains("sample_weights") ? golden_tensor(golden.at("sample_weights")) : torch::Tensor();
  return Dataset::from_tensor_slices(x, y, weight).batch(golden.at("global_batch"));
}

std::string trained(const json& golden) {
  const bool labels = golden.at("loss") == "Sparse";
  const torch::Tensor x = golden_tensor(golden.at("x"));
  const torch::Tensor y = golden_tensor(golden.at("y"), labels ? torch::kLong : torch::kDouble);
  const MirroredStrategy strategy({.devices = cpu_devices(golden.at("replicas"))});
  const StrategyScope scope = strategy.scope();
  const auto outputs = static_cast<int64_t>(golden.at("weights").back().size());
  Sequential model = network_of({.outputs = outputs, .l2 = golden.at("l2")});
  set_keras_weights(model, golden.at("weights"));
  const Loss loss = labels ? SparseCategoricalCrossentropy({.from_logits = true}) : MeanSquaredError();
  model.compile({.optimizer = optimizer_of(golden),
                 .loss = loss,
                 .metrics = {labels ? "accuracy" : "mae"},
                 .loss_average = LossAverage::kReplicas});
  // Keras cuts each batch by itself where the data is not in files, as kData does.
  const InputOptions input{.auto_shard = AutoShard::kData};
  FitOptions options{.epochs = golden.at("epochs"), .verbose = Verbose::kSilent, .input = input};
  if (golden.contains("validation")) {
    const std::string text = golden.at("validation");
    int first = 0, size = 0;
    if (std::sscanf(text.c_str(), "the first %d examples in batches of %d", &first, &size) != 2) {
      throw std::invalid_argument("unknown validation: " + text);
    }
    options.validation_data = Dataset::from_tensor_slices(x.slice(0, 0, first), y.slice(0, 0, first)).batch(size);
  }
  const Dataset data = batches(golden, x, y);
  const History history = model.fit(data, options);

  std::string differences;
  for (const auto& [name, wanted] : golden.at("history").items()) {
    const torch::Tensor actual = torch::tensor(history[name], torch::kDouble);
    differences += difference("history " + name, actual, golden_tensor(wanted), kWithin);
  }
  const Logs evaluation = model.evaluate(data, {.verbose = Verbose::kSilent, .input = input});
  for (const auto& [name, wanted] : golden.at("evaluate").items()) {
    differences += difference("evaluated " + name, evaluation[name], golden_number(wanted), kWithin);
  }
  differences +=
      difference("predictions", model.predict(x.slice(0, 0, 7)), golden_tensor(golden.at("predict_first_7")), kWithin);
  const NamedTensors weights = model.weights();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const torch::Tensor& own = weights[i].second;
    differences += difference(weights[i].first, own.dim() == 2 ? own.t() : own,
                              golden_tensor(golden.at("final_weights").at(i)), kWithin);
  }
  return differences;
}

// Keras cannot do this, so it is compared with one device: returns the differences.
std::string as_alone(const json& golden) {
  const int64_t examples = golden.at("examples"), batch = golden.at("global_batch");
  torch::manual_seed(examples);
  const torch::Tensor x = torch::randn({examples, 4}, torch::kDouble);
  const torch::Tensor y = torch::randn({examples, 2}, torch::kDouble);
  NamedTensors start;
  std::vector<NamedTensors> ends;
  std::vector<History> histories;
  for (const int replicas : {1, golden.at("replicas").get<int>()}) {
    const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
    const StrategyScope scope = strategy.scope();
    Sequential model = network_of({.outputs = 2});
    if (start.empty()) start = model.weights();
    model.set_weights(start);
    model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError(), .metrics = {"mae"}});
    const Dataset data = Dataset::from_tensor_slices(x, y).batch(batch);
    histories.push_back(model.fit(data, {.epochs = 3, .verbose = Verbose::kSilent}));
    ends.push_back(model.weights());
  }
  constexpr Tolerance kSame = {.absolute = 1e-9};
  std::string differences;
  for (const std::string& name : histories[0].names()) {
    differences += difference("history " + name, torch::tensor(histories[1][name], torch::kDouble),
                              torch::tensor(histories[0][name], torch::kDouble), kSame);
  }
  for (std::size_t i = 0; i < start.size(); ++i) {
    differences += difference(start[i].first, ends[1][i].second, ends[0][i].second, kSame);
  }
  return differences;
}

std::string check_case(const json& golden) {
  return golden.contains("error") ? as_alone(golden) : trained(golden);
}

TEST(GoldenFit, Keras3) {
  check_golden("fit_keras3.json", check_case);
}

TEST(GoldenFit, Keras2) {
  check_golden("fit_keras2.json", check_case);
}

}  // namespace
}  // namespace cohort::testing::fit_test
