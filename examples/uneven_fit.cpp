// fit() on two replicas with global batches that they do not divide, a short last one, and callbacks that are called
// once in three steps: it trains as on one device. TensorFlow has an error for each (docs/from-tf-distribute.md).
// Usage: example_uneven_fit; prints the loss of the last epoch, once for each strategy.
#include <cmath>
#include <iostream>

#include "cohort/cohort.h"

namespace {

double last_loss(const cohort::Strategy& strategy) {
  using namespace cohort;
  torch::manual_seed(1);
  const auto scope = strategy.scope();
  Sequential model{Flatten(), Dense(32, Activation::kRelu), Dense(10)};
  model.compile(
      {.optimizer = "adam", .loss = SparseCategoricalCrossentropy({.from_logits = true}), .steps_per_execution = 3});
  const auto digits = datasets::drawn_digits({.train_size = 1'000, .test_size = 100});
  // Of 33 the replicas get 17 and 16; the last batch has 10.
  const History history = model.fit(digits.train.batch(33), {.epochs = 3, .verbose = Verbose::kSilent});
  std::cout << strategy.num_replicas_in_sync() << " replica(s), " << model.optimizer().iterations() << " steps: loss "
            << history["loss"].back() << "\n";
  return history["loss"].back();
}

}  // namespace

int main() {
  const double alone = last_loss(cohort::OneDeviceStrategy("/CPU:0"));
  const double together = last_loss(cohort::MirroredStrategy({.devices = cohort::cpu_devices(2)}));
  return alone < 2.0 && std::abs(alone - together) < 1e-4 ? 0 : 1;
}
