// fit() of a model with two inputs and two outputs, as Keras 3 does it (several_outputs.json).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/dataset.h"
#include "cohort/train/model.h"
#include "tests/golden/golden.h"

namespace cohort::testing::golden_several_outputs_test {
namespace {

using nlohmann::json;
using torch::Tensor;

constexpr Tolerance kWithin = {.absolute = 1e-6, .relative = 1e-6};
constexpr int64_t kBatch = 20;      // these two give Keras' weights; the file does not say them
constexpr int64_t kValidated = 20;  // the first examples
constexpr double kSumWeight = 0.3;

struct TwoByTwoImpl : torch::nn::Module {
  TwoByTwoImpl() {
    hidden = register_module("hidden", torch::nn::Linear(5, 4));
    kind = register_module("kind", torch::nn::Linear(4, 3));
    sum = register_module("sum", torch::nn::Linear(4, 1));
    to(torch::kDouble);
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& left, const Tensor& right) {
    const Tensor h = torch::tanh(hidden->forward(torch::cat({left, right}, 1)));
    return {kind->forward(h), sum->forward(h)};
  }
  torch::nn::Linear hidden{nullptr}, kind{nullptr}, sum{nullptr};
};
TORCH_MODULE(TwoByTwo);

// Returns Keras' weights by our names.
NamedTensors own(const json& golden, const json& values) {
  NamedTensors named;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string path = golden.at("names")[i].get<std::string>();
    const Tensor value = golden_tensor(values[i]);
    named.emplace_back(path.substr(0, path.find('/')) + (value.dim() == 2 ? ".weight" : ".bias"),
                       value.dim() == 2 ? value.t().contiguous() : value);
  }
  return named;
}

Dataset dataset_of(const json& golden, int64_t examples) {
  const auto first = [&](const char* name, torch::ScalarType dtype) {
    return golden_tensor(golden.at(name), dtype).slice(0, 0, examples);
  };
  Example all;
  all.inputs = {{"left", first("left", torch::kDouble)}, {"right", first("right", torch::kDouble)}};
  all.targets = {{"kind", first("kind_y", torch::kLong)}, {"sum", first("sum", torch::kDouble)}};
  return Dataset::from_tensor_slices(all).batch(kBatch);
}

TEST(GoldenSeveralOutputs, Keras3) {
  check_golden("several_outputs.json", [](const json& golden) {
    const MirroredStrategy strategy({.devices = cpu_devices(golden.at("replicas"))});
    const StrategyScope scope = strategy.scope();
    Model model([] { return TwoByTwo(); }, {.inputs = {"left", "right"}, .outputs = {"kind", "sum"}});
    model.set_weights(own(golden, golden.at("weights")));
    model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                   .losses = {{"kind", SparseCategoricalCrossentropy({.from_logits = true})}, {"sum", "mse"}},
                   .loss_weights = {{"sum", kSumWeight}},
                   .output_metrics = {{"kind", {"accuracy"}}, {"sum", {"mae"}}}});
    const History history =
        model.fit(dataset_of(golden, 40),
                  {.epochs = 3, .validation_data = dataset_of(golden, kValidated), .verbose = Verbose::kSilent});
    std::string differences;
    for (const auto& [name, wanted] : golden.at("history").items()) {
      differences +=
          difference("history " + name, torch::tensor(history[name], torch::kDouble), golden_tensor(wanted), kWithin);
    }
    const Logs evaluation = model.evaluate(dataset_of(golden, 40), {.verbose = Verbose::kSilent});
    for (const auto& [name, wanted] : golden.at("evaluate").items()) {
      differences += difference("evaluated " + name, evaluation[name], golden_number(wanted), kWithin);
    }
    const NamedTensors wanted = own(golden, golden.at("final_weights")), found = model.weights();
    for (std::size_t i = 0; i < found.size(); ++i) {
      differences += difference(found[i].first, found[i].second, wanted.at(i).second, kWithin);
    }
    return differences;
  });
}

}  // namespace
}  // namespace cohort::testing::golden_several_outputs_test
