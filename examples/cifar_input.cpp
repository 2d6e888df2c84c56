// The input of CIFAR-10 as TensorFlow Datasets prepares it: shards of JPEGs, augmented, batched; trained on for a few
// steps.
// Usage: example_cifar_input FOLDER [steps]; ends with "images/s: ..."
#include <chrono>
#include <cstdlib>
#include <iostream>

#include "cohort/cohort.h"

using namespace cohort;

namespace {

const std::vector<double> kMean = {0.491, 0.482, 0.447};
const std::vector<double> kDeviation = {0.247, 0.243, 0.262};

Dataset training_input(const TFDSFolder& cifar) {
  return cifar.split("train[:90%]", {.threads = {.num_parallel_calls = 2}})
      .cache()  // the decoded images, as bytes
      .shuffle(10'000)
      .random_map([](Example example, at::Generator generator) {
        example.x = random_horizontal_flip(random_crop(example.x, 32, 32, generator, {.padding = 4}), generator);
        example.x = normalize(example.x, kMean, kDeviation);
        return example;
      })
      .batch(128)
      .prefetch();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: example_cifar_input FOLDER [steps]\n";
    return 2;
  }
  const int64_t steps = argc > 2 ? std::atoi(argv[2]) : 50;
  torch::manual_seed(1);
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  const TFDSFolder cifar(argv[1]);
  Sequential model{Conv2D({.filters = 16, .kernel_size = 3, .strides = 2, .activation = Activation::kRelu}), Flatten(),
                   Dense(cifar.num_classes())};
  model.compile({.optimizer = SGD({.learning_rate = 0.05, .momentum = 0.9}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  const auto begin = std::chrono::steady_clock::now();
  const History history = model.fit(training_input(cifar).take(steps), {.epochs = 1});
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  std::cout << "accuracy: " << history["accuracy"].back()
            << "\nimages/s: " << 128.0 * static_cast<double>(steps) / spent.count() << "\n";
  return 0;
}
