// Chapter 5 of docs/tutorial: the processes of a cluster train one model.
// Usage: cohort launch --nproc=2 -- tutorial_two_machines
#include <torch/torch.h>

#include <iomanip>
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

Example in_float64(Example digit) {
  digit.x = digit.x.to(torch::kFloat64);
  return digit;
}

int main() {
  torch::manual_seed(1);
  const MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});
  const auto scope = strategy.scope();
  std::cout << "I am worker " << strategy.worker_rank() << " of " << strategy.num_workers() << std::endl;

  Sequential model({Flatten(), Dense(64, Activation::kRelu), Dense(10)}, {.dtype = torch::kFloat64});
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});

  const auto [train, test] = datasets::drawn_digits({.train_size = 2'000, .test_size = 500});
  model.fit(train.map(in_float64).shuffle(2'000, {.seed = 1}).batch(64), {.epochs = 3, .verbose = Verbose::kSilent});
  const Logs result = model.evaluate(test.map(in_float64).batch(64), {.verbose = Verbose::kSilent});

  if (strategy.should_save_summary())  // true on the chief, worker 0
    std::cout << std::setprecision(9) << "loss " << result["loss"] << ", accuracy " << result["accuracy"] << std::endl;
  model.save_weights("tutorial.safetensors");  // all workers call it, the chief writes
}
