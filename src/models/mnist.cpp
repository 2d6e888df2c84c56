#include "models/mnist.h"

#include <algorithm>

namespace cohort {

Sequential mnist_mlp() {
  return Sequential({Flatten(), Dense(256, Activation::kRelu), Dense(128, Activation::kRelu), Dense(10)},
                    {.name = "mnist_mlp"});
}

Sequential mnist_cnn() {
  return Sequential({Conv2D({.filters = 32, .kernel_size = 3, .activation = Activation::kRelu}),
                     Conv2D({.filters = 64, .kernel_size = 3, .activation = Activation::kRelu}),
                     MaxPooling2D({.pool_size = 2}), Flatten(), Dense(64, Activation::kRelu), Dense(10)},
                    {.name = "mnist_cnn"});
}

CompileOptions mnist_compile(int64_t steps) {
  const Schedule rate =
      CosineDecay({.initial_learning_rate = 2e-3, .decay_steps = std::max<int64_t>(steps, 1), .alpha = 0.01});
  return {.optimizer = Adam({.learning_rate = rate}),
          .loss = SparseCategoricalCrossentropy({.from_logits = true}),
          .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}};
}

datasets::TrainTest digits(const std::filesystem::path& folder, uint64_t seed) {
  return folder.empty() ? datasets::drawn_digits({.seed = seed}) : datasets::mnist(folder);
}

}  // namespace cohort
