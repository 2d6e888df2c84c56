// Training on the devices of an XLA plugin. The argument names the plugin: "cpu", "tpu", or the path of a file.
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

double train_on(const std::string& plugin) {
  const XlaStrategy strategy({.plugin = plugin, .num_devices = 2});
  const auto scope = strategy.scope();

  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});

  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  model.fit(train.shuffle(4'000).batch(100), {.epochs = 3});
  return model.evaluate(test.batch(100))["accuracy"];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train_on(argc > 1 ? argv[1] : "cpu") > 0.5 ? 0 : 1;
  } catch (const Error& error) {  // there is no such plugin
    std::cerr << error.what() << "\n";
    return 1;
  }
}
