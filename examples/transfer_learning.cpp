// Transfer learning: freeze the base, train a new head, unfreeze the last layers, recompile with a smaller rate, go on.
// The base learns to tell small digits from large ones first; prints the accuracy after each stage.
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

void compile(Model& model, double rate) {
  model.compile({.optimizer = Adam({.learning_rate = rate}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
}

std::vector<Layer> base() {
  return {Flatten(), Dense({.units = 128, .activation = Activation::kRelu, .name = "base_1"}),
          Dense({.units = 64, .activation = Activation::kRelu, .name = "base_2"})};
}

}  // namespace

int main() {
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  const auto halves = train.map([](Example e) {
    e.y = e.y.div(5, "floor");  // 0 to 4 or 5 to 9
    return e;
  });

  std::vector<Layer> first = base();
  first.push_back(Dense({.units = 2, .name = "halves"}));
  Sequential pretrained(first);
  compile(pretrained, 1e-3);
  pretrained.fit(halves.shuffle(4'000).batch(64), {.epochs = 3});

  std::vector<Layer> second = base();
  second.push_back(Dense({.units = 10, .name = "digits"}));
  Sequential model(second);
  model.build({28, 28});
  NamedTensors learned;
  for (const auto& [name, tensor] : pretrained.weights()) {
    if (name.starts_with("base")) learned.emplace_back(name, tensor);
  }
  for (const auto& item : model.weights()) {
    if (item.first.starts_with("digits")) learned.push_back(item);
  }
  model.set_weights(learned);
  for (const char* name : {"base_1", "base_2"}) model.layer(name).set_trainable(false);
  compile(model, 3e-3);
  const double head = model.fit(train.shuffle(4'000).batch(64), {.epochs = 2})["accuracy"].back();

  model.layer("base_2").set_trainable(true);
  compile(model, 5e-4);
  const double tuned = model.fit(train.shuffle(4'000).batch(64), {.epochs = 3})["accuracy"].back();
  std::cout << "head alone: " << head << ", last layers too: " << tuned << "\n";
  return tuned > head ? 0 : 1;
}
