// fit() with parameter servers: the program of one machine, and the line that sends workers and servers to their work.
//
//   cohort launch --ps=2 --workers=2 -- example_parameter_server_fit
#include <iostream>

#include "cohort/cohort.h"

int main() {
  using namespace cohort;
  torch::manual_seed(1);
  const ParameterServerStrategy strategy;
  const auto scope = strategy.scope();

  Sequential model{Flatten(), Dense(128), BatchNormalization({.momentum = 0.9}), Activation(Activation::kRelu),
                   Dense(10)};
  model.build({1, 28, 28});
  model.compile({.optimizer = Adam({.learning_rate = 2e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  if (strategy.serve()) return 0;  // all tasks know the variables now; workers and servers stay here

  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  const Dataset batches = train.shuffle(4'000).batch(64);
  const History history = model.fit(batches, {.epochs = 5, .validation_data = test.batch(64)});
  const int64_t steps = model.optimizer().iterations();  // each counts once, however many workers took them
  std::cout << steps << " steps, validation accuracy: " << history["val_accuracy"].back() << "\n";
  return history["val_accuracy"].back() > 0.8 && steps == 5 * batches.size() ? 0 : 1;
}
