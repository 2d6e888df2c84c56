// The workers of a cluster train one model: cohort launch --nproc=2 -- example_multi_worker
#include <iostream>

#include "cohort/cohort.h"

int main() {
  using namespace cohort;
  MultiWorkerMirroredStrategy strategy({.devices = {"/CPU:0"}});  // TF_CONFIG says who is who; without it, one worker
  auto scope = strategy.scope();

  Sequential model{Flatten(), Dense(64, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});

  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  model.fit(train.shuffle(4'000, {.seed = 1}).batch(global_batch), {.epochs = 2});  // the chief shows the progress
  const Logs result = model.evaluate(test.batch(global_batch));
  if (strategy.should_save_summary())
    std::cout << strategy.num_workers() << " worker(s): " << result["accuracy"] << "\n";
  return result["accuracy"] > 0.5 ? 0 : 1;
}
