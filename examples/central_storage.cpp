// Central storage: the replicas compute, one copy of the variables lives on the parameter device.
// Prints how many copies of the weights there are (1) and the accuracy.
#include <iostream>

#include "cohort/cohort.h"

int main() {
  using namespace cohort;
  torch::manual_seed(1);
  const CentralStorageStrategy strategy({.compute_devices = cpu_devices(2), .parameter_device = "/CPU:0"});
  const auto scope = strategy.scope();
  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  const auto [train, test] = datasets::drawn_digits({.train_size = 3'000, .test_size = 500});
  model.fit(train.shuffle(3'000).batch(64), {.epochs = 3, .verbose = Verbose::kSilent});

  const auto& copies = model.module().copies();
  const bool shared = copies[0]->parameters()[0].data_ptr() == copies[1]->parameters()[0].data_ptr();
  std::cout << "copies of the weights: " << (shared ? 1 : 2) << "\n";
  const double accuracy = model.evaluate(test.batch(64), {.verbose = Verbose::kSilent})["accuracy"];
  std::cout << "accuracy: " << accuracy << "\n";
  return shared && accuracy > 0.5 ? 0 : 1;
}
