// Chapter 6 of docs/tutorial: a worker is killed, and the training goes on from its last backup.
// Usage: cohort launch --nproc=2 --max_restarts=3 -- tutorial_when_something_dies FOLDER [MILLISECONDS a step]
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <thread>

#include "cohort/cohort.h"

using namespace cohort;

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "tutorial_backup";
  const std::chrono::milliseconds pause(argc > 2 ? std::stoi(argv[2]) : 0);
  torch::manual_seed(1);
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});
  const auto scope = strategy.scope();

  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile(
      {.optimizer = Adam({.learning_rate = 1e-3}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});

  // A backup every ten steps; with it a program that is started again goes on by itself.
  const CallbackPtr backup = BackupAndRestore({.directory = folder, .save_freq = 10});
  // Says where training is, and takes the time that a larger model would.
  const CallbackPtr report = LambdaCallback(
      {.on_train_begin = [](const RunInfo&) { std::cout << "this is process " << getpid() << std::endl; },
       .on_batch_end =
           [&](const RunInfo& run, const BatchLogs&) {
             if (run.step % 20 == 0) std::cout << "step " << run.step << std::endl;
             std::this_thread::sleep_for(pause);
           }});

  const auto digits = datasets::drawn_digits({.train_size = 2'000, .test_size = 500});
  model.fit(digits.train.shuffle(2'000, {.seed = 1}).batch(50),
            {.epochs = 3, .callbacks = {backup, report}, .verbose = Verbose::kSilent});
  const Logs result = model.evaluate(digits.test.batch(50), {.verbose = Verbose::kSilent});
  if (strategy.should_save_summary()) std::cout << std::setprecision(17) << "loss " << result["loss"] << std::endl;
}
