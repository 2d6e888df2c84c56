// Two inputs, two outputs: a model looks at two pictures of digits and tells their sum and whether the left one is
// larger. Each output has its loss and its metric. Prints how well both are told of pictures it has not seen.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

struct PairImpl : torch::nn::Module {
  PairImpl() {
    digit = register_module("digit", torch::nn::Linear(28 * 28, 64));
    hidden = register_module("hidden", torch::nn::Linear(2 * 64, 64));
    sum = register_module("sum", torch::nn::Linear(64, 1));
    larger = register_module("larger", torch::nn::Linear(64, 2));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(const torch::Tensor& left, const torch::Tensor& right) {
    const auto look = [&](const torch::Tensor& picture) { return torch::relu(digit(picture.flatten(1))); };
    const torch::Tensor both = torch::relu(hidden(torch::cat({look(left), look(right)}, 1)));
    return {sum(both), larger(both)};
  }
  torch::nn::Linear digit{nullptr}, hidden{nullptr}, sum{nullptr}, larger{nullptr};
};
TORCH_MODULE(Pair);

Dataset pairs(const Dataset& digits) {
  return digits.batch(2, {.drop_remainder = true}).map([](Example two) {
    return Example{.inputs = {{"left", two.x[0]}, {"right", two.x[1]}},
                   .targets = {{"sum", two.y.sum(0, /*keepdim=*/true).to(torch::kFloat)},
                               {"larger", (two.y[0] > two.y[1]).to(torch::kLong)}}};
  });
}

}  // namespace

int main() {
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const auto [train, test] = datasets::drawn_digits({.train_size = 8'000, .test_size = 1'000});

  Model model([] { return Pair(); }, {.inputs = {"left", "right"}, .outputs = {"sum", "larger"}});
  model.compile({.optimizer = Adam({.learning_rate = 3e-3}),
                 .losses = {{"sum", "mse"}, {"larger", SparseCategoricalCrossentropy({.from_logits = true})}},
                 .loss_weights = {{"sum", 0.1}},
                 .output_metrics = {{"sum", {"mae"}}, {"larger", {"accuracy"}}}});
  model.fit(pairs(train.shuffle(8'000)).batch(64), {.epochs = 12});

  const Logs logs = model.evaluate(pairs(test).batch(64));
  const NamedTensors outputs = model.predict_outputs(pairs(test).take(3).batch(3));
  for (const auto& [name, values] : outputs) std::cout << name << ": " << values.sizes() << "\n";
  std::cout << "sum off by " << logs["sum_mae"] << ", larger told " << logs["larger_accuracy"] << "\n";
  return logs["sum_mae"] < 3.0 && logs["larger_accuracy"] > 0.7 ? 0 : 1;
}
