// The outer loop by a Controller: steps instead of epochs, checkpoints, the best one, averages of the weights.
// Usage: example_controller [FOLDER]
#include <filesystem>
#include <iostream>

#include "cohort/cohort.h"

int main(int argc, char** argv) {
  using namespace cohort;
  torch::manual_seed(1);
  const std::filesystem::path folder =
      argc > 1 ? argv[1] : std::filesystem::temp_directory_path() / "cohort_controller";
  MirroredStrategy strategy({.devices = cpu_devices(2)});
  auto scope = strategy.scope();
  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});

  auto trainer =
      std::make_shared<ModelTrainer>(model, ModelTrainerOptions{.train = train.shuffle(4'000).batch(100).repeat(),
                                                                .validation = test.batch(100),
                                                                .ema = {.average_decay = 0.99}});
  Controller controller(
      {.trainer = trainer,
       .evaluator = trainer,
       .train_actions = {Recovery({.max_trials = 2})},
       .eval_actions = {BestCheckpoint({.metric = "accuracy",
                                        .directory = folder / "best",
                                        .save = [&](const auto& file) { model.save_weights(file); }})},
       .steps_per_loop = 40,
       .checkpoint_dir = folder,
       .checkpoint_interval = 80});
  // A program that was interrupted goes on at its latest checkpoint when it is started again.
  const Logs result = controller.train_and_evaluate(/*train_steps=*/240, kAllSteps, /*eval_interval=*/80);
  const bool well = result.empty() || result["accuracy"] > 0.6;
  if (argc == 1) std::filesystem::remove_all(folder);
  return well ? 0 : 1;
}
