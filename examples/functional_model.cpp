// The pairs of digits of two_inputs.cpp with a functional model: both pictures go through the same layer. A second
// model, of some of the same layers, shows what the first one sees in a picture.
#include <torch/torch.h>

#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

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

  const SymbolicTensor left = Input({28, 28}, {.name = "left"});
  const SymbolicTensor right = Input({28, 28}, {.name = "right"});
  const Layer flatten = Flatten(), digit = Dense(64, Activation::kRelu);
  const SymbolicTensor seen = digit(flatten(left));
  const SymbolicTensor both = Concatenate()({seen, digit(flatten(right))});
  const SymbolicTensor hidden = Dense(64, Activation::kRelu)(both);
  Functional model({left, right}, {{"sum", Dense(1)(hidden)}, {"larger", Dense(2)(hidden)}}, {.name = "pairs"});
  model.summary();

  model.compile({.optimizer = Adam({.learning_rate = 3e-3}),
                 .losses = {{"sum", "mse"}, {"larger", SparseCategoricalCrossentropy({.from_logits = true})}},
                 .loss_weights = {{"sum", 0.1}},
                 .output_metrics = {{"sum", {"mae"}}, {"larger", {"accuracy"}}}});
  model.fit(pairs(train.shuffle(8'000)).batch(64), {.epochs = 12});
  const Logs logs = model.evaluate(pairs(test).batch(64));
  std::cout << "sum off by " << logs["sum_mae"] << ", larger told " << logs["larger_accuracy"] << "\n";

  Functional eye(left, seen);  // with the trained parameters
  std::cout << "seen in a picture: " << eye.predict(torch::rand({1, 28, 28})).sizes() << "\n";
  return logs["sum_mae"] < 3.0 && logs["larger_accuracy"] > 0.7 ? 0 : 1;
}
