// A process that evaluates the checkpoints of another one, here a thread beside the training.
// Usage: example_evaluator
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <thread>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

Sequential make_model() {
  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  return model;
}

int64_t evaluate(const std::filesystem::path& folder, const Dataset& test) {
  Sequential model = make_model();
  const auto note = LambdaCallback({.on_test_end = [](const RunInfo& run, const Logs& logs) {
    std::cout << "step " << run.step << ": accuracy " << logs["accuracy"] << "\n";
  }});
  SidecarEvaluator evaluator(model, test.batch(128),
                             {.checkpoint_dir = folder / "backup", .evaluate = {.callbacks = {note}}});
  return evaluator.start();  // the number of evaluations, when the training has ended
}

}  // namespace

int main() {
  const auto folder = std::filesystem::temp_directory_path() / ("cohort_evaluator_" + std::to_string(::getpid()));
  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  int64_t evaluations = 0;
  std::jthread beside([&, &data = test] { evaluations = evaluate(folder, data); });
  Sequential model = make_model();
  model.fit(train.shuffle(4'000).batch(128),
            {.epochs = 3,
             .callbacks = {BackupAndRestore({.directory = folder / "backup", .delete_checkpoint = false})},
             .verbose = Verbose::kSilent});
  beside.join();
  std::filesystem::remove_all(folder);
  return evaluations > 0 ? 0 : 1;
}
