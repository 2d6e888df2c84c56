// MNIST itself, where it lies (COHORT_MNIST, or ../shared/data/mnist): what the core can train without any wing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "cohort/data/datasets.h"
#include "cohort/distributed_dataset.h"
#include "cohort/strategy.h"
#include "cohort/train.h"
#include "cohort/update_rules.h"

namespace cohort::mnist_test {
namespace {

TEST(Mnist, TrainsOnTwoReplicas) {
  const char* const named = std::getenv("COHORT_MNIST");
  const std::filesystem::path folder = named != nullptr ? named : "../shared/data/mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "MNIST is not here";
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto scope = strategy.scope();
  Sequential model{Flatten(), Dense(128, Activation::kRelu), Dense(10)};
  model.compile({.optimizer = Adam({.learning_rate = 1e-3}),
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy({.name = "accuracy"})}});
  const auto [train, test] = datasets::mnist(folder);
  model.fit(train.shuffle(10'000, {.seed = 1}).batch(128), {.epochs = 2, .verbose = Verbose::kSilent});
  EXPECT_GT(model.evaluate(test.batch(500))["accuracy"], 0.95);
}

}  // namespace
}  // namespace cohort::mnist_test
