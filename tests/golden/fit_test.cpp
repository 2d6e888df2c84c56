// fit() as Keras 3 and Keras 2 do it: history, evaluation, predictions and final weights of a small network.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "cohort/dataset.h"
#include "cohort/train/layers.h"
#include "cohort/train/metrics.h"
#include "cohort/train/model.h"
#include "tests/golden/golden.h"
#include "tests/golden/keras_weights.h"
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
  const auto kept = std::make_shared<const Optimizer>(made);
  return {std::shared_ptr<const UpdateRule>(kept, &kept->rule()), rate, made.gradient()};
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

// fits_keras3.json says what a case is about, but neither its layers nor its optimizer: these give its predictions and
// its final weights in Keras.
std::vector<Layer> layers_of(const std::string& tag) {
  if (tag == "batch_norm")
    return {Dense(5), BatchNormalization({.momentum = 0.8}), Activation(Activation::kRelu), Dense(3)};
  const Layer embedding = Embedding({.input_dim = 6, .output_dim = 3, .mask_zero = true});
  if (tag == "embedding_lstm") return {embedding, LSTM(4), Dense(1, Activation::kSigmoid)};
  if (tag == "embedding_gru_bi") return {embedding, Bidirectional(GRU(3)), Dense(1, Activation::kSigmoid)};
  if (tag == "masked_sequence_out") {
    return {Masking(), LSTM({.units = 3, .return_sequences = true}), TimeDistributed(Dense(1))};
  }
  if (tag == "cnn") {
    return {Conv2D({.filters = 3, .kernel_size = 3, .padding = Padding::kSame, .activation = Activation::kRelu}),
            MaxPooling2D(), Flatten(), Dense(3)};
  }
  DenseOptions first{.units = 5, .activation = Activation::kTanh};
  if (tag == "regularized") {
    first.kernel_regularizer = Regularizer::l1_l2(0.01, 0.02);
    first.bias_regularizer = Regularizer::l1(0.01);
  }
  return {Dense(first), Dense(3)};
}

const std::map<std::string, std::string> kOptimizers = {
    {"adamw", R"("AdamW", "options": {"learning_rate": 0.02, "weight_decay": 0.1})"},
    {"cnn", R"("Adam", "options": {"learning_rate": 0.01})"},
    {"clipnorm", R"("SGD", "options": {"learning_rate": 0.5, "clipnorm": 0.05})"},
    {"clipvalue", R"("SGD", "options": {"learning_rate": 0.5, "clipvalue": 0.02})"},
    {"ema", R"("SGD", "options": {"learning_rate": 0.2, "use_ema": true, "ema_momentum": 0.9})"},
    {"ema_overwrite", R"("SGD", "options": {"learning_rate": 0.2, "use_ema": true, "ema_momentum": 0.9,
                         "ema_overwrite_frequency": 4})"},
    {"embedding_gru_bi", R"("Adagrad", "options": {"learning_rate": 0.1})"},
    {"embedding_lstm", R"("RMSprop", "options": {"learning_rate": 0.01})"},
    {"global_clipnorm", R"("SGD", "options": {"learning_rate": 0.2, "global_clipnorm": 0.25})"},
    {"loss_scale", R"("SGD", "options": {"learning_rate": 0.1, "loss_scale_factor": 1024.0})"},
    {"schedule", R"("SGD", "options": {"learning_rate": {"class_name": "CosineDecay", "config": {
                    "initial_learning_rate": 0.3, "decay_steps": 7, "warmup_target": 0.5, "warmup_steps": 3}}})"},
    {"sample_weight", R"("SGD", "options": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": true})"},
};

Optimizer optimizer_of_tag(const std::string& tag) {
  const auto found = kOptimizers.find(tag);
  const std::string text = found == kOptimizers.end() ? R"("SGD", "options": {"learning_rate": 0.1})" : found->second;
  return optimizer_of(json::parse(R"({"optimizer": )" + text + "}"));
}

// Returns Keras' weights by our names. The layers with weights are in one order, and Flatten has the channels last
// there.
NamedTensors own_weights_of(const Sequential& model, const json& golden, const json& values) {
  std::vector<std::string> layers;
  for (const ModelLayer& layer : model.layers()) {
    if (!layer.weights().empty()) layers.emplace_back(layer.name());
  }
  NamedTensors named;
  std::string last;
  std::size_t at = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string path = golden.at("names")[i].get<std::string>();
    const std::string within = path.substr(path.find('/') + 1);
    const std::string layer = within.substr(0, within.find('/'));
    if (layer != last) ++at;
    last = layer;
    torch::Tensor keras = golden_tensor(values[i]);
    if (golden.at("tag") == "cnn" && keras.dim() == 2)
      keras = keras.view({3, 3, 3, 3}).permute({2, 0, 1, 3}).flatten(0, 2);
    const std::string type = layer.starts_with("time_distributed") ? "TimeDistributed" : "";
    for (auto& [name, value] : own_weights(type, within.substr(within.find('/') + 1), keras)) {
      named.emplace_back(layers.at(at - 1) + "." + name, value);
    }
  }
  return named;
}

CompileOptions compile_options(const json& golden, const torch::Tensor& y) {
  const json& logs = golden.at("evaluate");
  CompileOptions options{.optimizer = optimizer_of_tag(golden.at("tag")), .loss_average = LossAverage::kReplicas};
  options.loss = golden.at("tag") == "masked_sequence_out" ? MeanSquaredError() : BinaryCrossentropy();
  if (y.dim() == 1) options.loss = SparseCategoricalCrossentropy({.from_logits = true});
  for (const char* name : {"accuracy", "mae"}) {
    if (logs.contains(name)) options.metrics.emplace_back(name);
  }
  if (logs.contains("auc")) options.metrics.push_back(AUC());
  if (logs.contains("weighted_accuracy")) options.weighted_metrics = {"accuracy"};
  return options;
}

// Returns the numbers of a case, of images with the channels in front.
torch::Tensor numbers_of(const json& numbers) {
  const json* first = &numbers;
  while (first->is_array()) first = &first->front();
  const torch::Tensor tensor = golden_tensor(numbers, first->is_number_integer() ? torch::kLong : torch::kDouble);
  return tensor.dim() == 4 ? tensor.permute({0, 3, 1, 2}).contiguous() : tensor;
}

std::string apart(const NamedTensors& all, const NamedTensors& wanted) {
  std::string differences;
  for (const auto& [name, value] : wanted) {
    const auto own = std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.first == name; });
    differences += own == all.end() ? "there is no " + name : difference(name, own->second, value, kWithin);
  }
  return differences;
}

std::string check_tagged(const json& golden) {
  const torch::Tensor x = numbers_of(golden.at("x")), y = numbers_of(golden.at("y"));
  const MirroredStrategy strategy({.devices = cpu_devices(golden.at("replicas"))});
  const StrategyScope scope = strategy.scope();
  Sequential model(layers_of(golden.at("tag")), {.dtype = torch::kDouble});
  model.build(x.sizes().slice(1).vec(), x.scalar_type());
  NamedTensors start = model.weights();
  for (const auto& [name, value] : own_weights_of(model, golden, golden.at("weights"))) {
    for (auto& each : start) {
      if (each.first == name) each.second = value.contiguous();
    }
  }
  model.set_weights(start);
  model.compile(compile_options(golden, y));

  torch::Tensor weight, evaluated;
  if (!golden.at("sample_weight").is_null()) weight = evaluated = golden_tensor(golden.at("sample_weight"));
  if (!golden.at("class_weight").is_null()) weight = golden_tensor(golden.at("class_weight")).index({y});
  const int64_t batch = golden.at("batch");
  const InputOptions input{.auto_shard = AutoShard::kData};
  FitOptions options{.epochs = golden.at("epochs"), .verbose = Verbose::kSilent, .input = input};
  if (!golden.at("validation").is_null()) {
    options.validation_data =
        Dataset::from_tensor_slices(numbers_of(golden.at("validation")[0]), numbers_of(golden.at("validation")[1]))
            .batch(batch);
  }
  const History history = model.fit(Dataset::from_tensor_slices(x, y, weight).batch(batch), options);
  std::string differences;
  for (const auto& [name, wanted] : golden.at("history").items()) {
    differences +=
        difference("history " + name, torch::tensor(history[name], torch::kDouble), golden_tensor(wanted), kWithin);
  }
  const Logs evaluation = model.evaluate(Dataset::from_tensor_slices(x, y, evaluated).batch(batch),
                                         {.verbose = Verbose::kSilent, .input = input});
  for (const auto& [name, wanted] : golden.at("evaluate").items()) {
    differences += difference("evaluated " + name, evaluation[name], golden_number(wanted), kWithin);
  }
  differences +=
      difference("predictions", model.predict(x.slice(0, 0, 5)), golden_tensor(golden.at("predict")), kWithin);
  return differences + apart(model.weights(), own_weights_of(model, golden, golden.at("final_weights")));
}

TEST(GoldenFit, Keras3OfManyKinds) {
  check_golden("fits_keras3.json", check_tagged,
               {{6, "each occurrence"}, {10, "Clipping on several replicas"}, {14, "each occurrence"}});
}

TEST(GoldenFit, Keras3) {
  check_golden("fit_keras3.json", check_case);
}

TEST(GoldenFit, Keras2) {
  check_golden("fit_keras2.json", check_case);
}

}  // namespace
}  // namespace cohort::testing::fit_test
