// fit() under MirroredStrategy with validation, callbacks and saved weights.
// Usage: example_fit_mirrored [replicas]; ends with "validation accuracy: 0.9..."
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "cohort/cohort.h"

int main(int argc, char** argv) {
  using namespace cohort;
  const int replicas = argc > 1 ? std::atoi(argv[1]) : 2;
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(replicas)});
  const auto scope = strategy.scope();

  Sequential model{Conv2D({.filters = 8, .kernel_size = 3, .activation = Activation::kRelu}),
                   MaxPooling2D({.pool_size = 2}), Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 2e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});

  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  const History history =
      model.fit(train.shuffle(4'000).batch(64), {.epochs = 3,
                                                 .validation_data = test.batch(64),
                                                 .callbacks = {EarlyStopping({.patience = 2}), TerminateOnNaN()}});
  const auto file = std::filesystem::temp_directory_path() / "cohort_example.safetensors";
  model.save_weights(file);
  std::filesystem::remove(file);
  std::cout << "validation accuracy: " << history["val_accuracy"].back() << "\n";
  return 0;
}
