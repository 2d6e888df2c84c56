#include "cohort/cohort.h"

int main() {
  using namespace cohort;
  MirroredStrategy strategy({.devices = cpu_devices(2)});  // {}: every visible GPU; without one, the CPU
  auto scope = strategy.scope();                           // what is created from here on belongs to the strategy

  Sequential model{Flatten(), Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});

  const auto [train, test] = datasets::drawn_digits({.train_size = 4'000, .test_size = 1'000});
  const int64_t global_batch = 64 * strategy.num_replicas_in_sync();
  model.fit(train.shuffle(4'000).batch(global_batch), {.epochs = 2});
  const Logs result = model.evaluate(test.batch(global_batch));
  return result["accuracy"] > 0.5 ? 0 : 1;
}
