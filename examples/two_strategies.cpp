// Two strategies in one process, whose models have batch norm over the global batch and train in turn. Each trains as
// on one device; in TensorFlow the second one's collectives meet the first one's (docs/from-tf-distribute.md). Usage:
// example_two_strategies; prints the loss of each and of the same model on one device.
#include <cmath>
#include <iostream>

#include "cohort/cohort.h"

namespace {

using namespace cohort;

constexpr int64_t kEpochs = 3;

Sequential network(const Strategy& strategy, int64_t width) {
  torch::manual_seed(1);
  const auto scope = strategy.scope();
  Sequential model{Flatten(), Dense(width), BatchNormalization({.momentum = 0.9, .synchronized = true}),
                   Activation(Activation::kRelu), Dense(10)};
  model.build({1, 28, 28});
  model.compile(
      {.optimizer = SGD({.learning_rate = 0.05}), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

double train(Sequential model, const Dataset& data, int64_t from, int64_t to) {
  return model.fit(data, {.epochs = to, .initial_epoch = from, .verbose = Verbose::kSilent})["loss"].back();
}

bool like_alone(const char* name, double together, double alone) {
  std::cout << name << ": loss " << together << ", on one device " << alone << "\n";
  return alone < 2.0 && std::abs(alone - together) < 1e-3;
}

}  // namespace

int main() {
  const MirroredStrategy two({.devices = cpu_devices(2)});
  const MirroredStrategy three({.devices = cpu_devices(3)});
  const OneDeviceStrategy one("/CPU:0");
  const Dataset data = datasets::drawn_digits({.train_size = 1'000, .test_size = 100}).train.batch(50);

  const Sequential narrow = network(two, 16);
  const Sequential wide = network(three, 48);
  double narrow_loss = 0.0, wide_loss = 0.0;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    narrow_loss = train(narrow, data, epoch, epoch + 1);
    wide_loss = train(wide, data, epoch, epoch + 1);
  }
  const bool good = like_alone("two replicas, 16 wide", narrow_loss, train(network(one, 16), data, 0, kEpochs));
  return like_alone("three replicas, 48 wide", wide_loss, train(network(one, 48), data, 0, kEpochs)) && good ? 0 : 1;
}
