// Options of fit() as Keras 3 has them: class weights, a part of the data for validation, the epochs of validations.
#include <gtest/gtest.h>

#include "cohort/dataset.h"
#include "cohort/train/layers.h"
#include "cohort/train/model.h"
#include "tests/golden/golden.h"

namespace cohort::testing::keras_fit_test {
namespace {

using nlohmann::json;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};

Loss loss_of(const json& loss) {
  if (loss.is_string()) return loss.get<std::string>().c_str();
  return SparseCategoricalCrossentropy({.reduction = LossReduction::kSum});
}

FitOptions options_of(const json& options) {
  FitOptions fit{.epochs = options.at("epochs"), .verbose = Verbose::kSilent, .shuffle = options.at("shuffle")};
  fit.initial_epoch = options.value("initial_epoch", fit.initial_epoch);
  fit.batch_size = options.value("batch_size", fit.batch_size);
  fit.validation_split = options.value("validation_split", fit.validation_split);
  if (options.contains("validation_freq"))
    fit.validation_freq.epochs = options.at("validation_freq").get<std::vector<int64_t>>();
  if (options.contains("class_weight")) {
    for (const auto& [label, weight] : options.at("class_weight").items()) fit.class_weight[std::stoll(label)] = weight;
  }
  return fit;
}

std::string check(const json& golden) {
  const json& compile = golden.at("compile");
  const torch::Tensor x = golden_tensor(golden.at("x"));
  const bool binary = compile.at("loss") == "binary_crossentropy";
  Sequential model({Dense({.units = 4, .activation = "tanh"}),
                    Dense({.units = binary ? 1 : 3, .activation = binary ? "sigmoid" : "softmax"})},
                   {.dtype = torch::kDouble});
  model.build({3});
  NamedTensors weights = model.weights();
  const auto keras = [&](const json& list, std::size_t i) {
    const torch::Tensor tensor = golden_tensor(list.at(i));
    return tensor.dim() == 2 ? tensor.t().contiguous() : tensor;
  };
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i].second = keras(golden.at("weights_before"), i);
  model.set_weights(weights);
  CompileOptions options{.optimizer = SGD({.learning_rate = 0.1}), .loss = loss_of(compile.at("loss"))};
  if (!compile.at("metrics").empty()) options.metrics = {"accuracy"};
  if (compile.contains("weighted_metrics")) {
    options.weighted_metrics = {"accuracy"};
  }
  model.compile(options);
  const torch::Tensor y = golden_tensor(golden.at("y"), binary ? torch::kDouble : torch::kLong);
  const History history = model.fit(x, binary ? y.unsqueeze(1) : y, options_of(golden.at("options")));
  std::string wrong;
  for (const auto& [log, wanted] : golden.at("history").items()) {
    const std::vector<double> got = history[log];
    wrong += difference(log, torch::tensor(got, torch::kDouble), golden_tensor(wanted), kWithin);
  }
  const NamedTensors after = model.weights();
  for (std::size_t i = 0; i < after.size(); ++i) {
    wrong += difference(after[i].first, after[i].second, keras(golden.at("weights_after"), i), kWithin);
  }
  return wrong;
}

TEST(KerasFit, OptionsDoWhatKerasDoes) {
  int fits = 0;
  check_golden(golden_folder() / ".." / "facts" / "keras", "facts.json", [&](const json& golden) {
    if (golden.at("kind") != "fit") return std::string();
    ++fits;
    return check(golden);
  });
  if (IsSkipped()) return;
  EXPECT_GT(fits, 0);
}

}  // namespace
}  // namespace cohort::testing::keras_fit_test
