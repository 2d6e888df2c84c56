// Training on the devices of an XLA plugin. The argument names the plugin: "cpu", "tpu", or the path of a file.
#include "cohort/cohort.h"

int main(int argc, char** argv) {
  using namespace cohort;
  const std::string plugin = argc > 1 ? argv[1] : "cpu";
  const XlaStrategy strategy({.plugin = plugin, .num_devices = 2});
  const auto scope = strategy.scope();

  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});

  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  model.fit(train.shuffle(4'000).batch(100), {.epochs = 3});
  const Logs result = model.evaluate(test.batch(100));
  return result["accuracy"] > 0.5 ? 0 : 1;
}
