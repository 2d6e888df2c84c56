// A run that may be killed at any time: started again, it goes on where its last backup was.
// Usage: example_backup [FOLDER]
#include <filesystem>
#include <iostream>

#include "cohort/cohort.h"

int main(int argc, char** argv) {
  using namespace cohort;
  torch::manual_seed(1);
  const std::filesystem::path folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "cohort_example";
  MirroredStrategy strategy({.devices = cpu_devices(2)});
  auto scope = strategy.scope();
  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  model.fit(train.shuffle(4'000).batch(128),
            {.epochs = 3,
             .validation_data = test.batch(128),
             .callbacks = {BackupAndRestore({.directory = folder / "backup", .save_freq = 20}),
                           ModelCheckpoint({.filepath = (folder / "best.safetensors").string(),
                                            .save_best_only = true,
                                            .save_weights_only = true})}});
  const bool there = std::filesystem::exists(folder / "best.safetensors");
  if (argc == 1) std::filesystem::remove_all(folder);
  return there ? 0 : 1;
}
