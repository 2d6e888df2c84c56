// Weights of classes and a part of the data for validation. tests/golden/keras_fit_test.cpp has Keras' numbers.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/train.h"
#include "tests/support/errors.h"

namespace cohort::fit_options_test {
namespace {

struct Trained {
  History history;
  NamedTensors weights;
};

const FitOptions kQuiet{.epochs = 2, .verbose = Verbose::kSilent, .batch_size = 4, .shuffle = false};

template <typename... Data>
Trained trained(const FitOptions& options, const Data&... data) {
  torch::manual_seed(1);
  Sequential model({Dense(3)}, {.dtype = torch::kDouble});
  model.build({2});
  model.compile({.optimizer = SGD(), .loss = SparseCategoricalCrossentropy({.from_logits = true})});
  Trained result{.history = model.fit(data..., options), .weights = {}};
  result.weights = model.weights();
  return result;
}

torch::Tensor some_x() {
  return torch::arange(20, torch::kDouble).view({10, 2}).sin();
}
torch::Tensor some_y() {
  return torch::arange(10) % 3;
}

void expect_alike(const Trained& one, const Trained& other) {
  for (std::size_t i = 0; i < one.weights.size(); ++i) {
    EXPECT_TRUE(torch::equal(one.weights[i].second, other.weights[i].second)) << one.weights[i].first;
  }
}

TEST(FitOptions, WeightsOfClassesAreWeightsOfExamples) {
  FitOptions options = kQuiet;
  options.class_weight = {{0, 0.5}, {2, 4.0}};
  const torch::Tensor weight = torch::tensor({0.5, 1.0, 4.0}, torch::kDouble).index({some_y()});
  const Trained wanted = trained(kQuiet, Example{.x = some_x(), .y = some_y(), .weight = weight});
  expect_alike(trained(options, some_x(), some_y()), wanted);
  const Dataset classes = Dataset::from_tensor_slices(some_x(), some_y()).batch(4);
  expect_alike(trained(options, classes), wanted);
}

TEST(FitOptions, ReplicasShareWeightedExamples) {
  FitOptions options = kQuiet;
  options.class_weight = {{1, 3.0}};
  const Trained wanted = trained(options, some_x(), some_y());
  const MirroredStrategy strategy({.devices = cpu_devices(3)});
  const auto scope = strategy.scope();
  const Trained got = trained(options, some_x(), some_y());
  for (std::size_t i = 0; i < got.weights.size(); ++i) {
    EXPECT_LT((got.weights[i].second - wanted.weights[i].second).abs().max().item<double>(), 1e-9);
  }
}

TEST(FitOptions, TheLastExamplesValidate) {
  FitOptions split = kQuiet;
  split.validation_split = 0.25;  // 7 to train with, 3 to validate with
  FitOptions given = kQuiet;
  given.validation_data = Dataset::from_tensor_slices(some_x().slice(0, 7), some_y().slice(0, 7)).batch(4);
  const Trained got = trained(split, some_x(), some_y());
  const Trained wanted = trained(given, some_x().slice(0, 0, 7), some_y().slice(0, 0, 7));
  expect_alike(got, wanted);
  EXPECT_EQ(got.history["val_loss"], wanted.history["val_loss"]);
}

TEST(FitOptions, ValidationsFollowTheEpochsThatAreNamed) {
  FitOptions options = kQuiet;
  options.epochs = 5;
  options.validation_split = 0.25;
  options.validation_freq = {2, 5};
  EXPECT_EQ(trained(options, some_x(), some_y()).history["val_loss"].size(), 2U);
}

TEST(FitOptions, WhatHasNoMeaningIsNamed) {
  const Dataset data = Dataset::from_tensor_slices(some_x(), some_y()).batch(4);
  const auto refused = [&](const std::string& part, const FitOptions& options, const auto&... columns) {
    testing::expect_error<InvalidArgument>([&] { (void)trained(options, columns...); }, part);
  };
  FitOptions split = kQuiet;
  split.validation_split = 0.5;
  refused("validation_split is 0.5, which fit() of tensors takes", split, data);
  split.validation_data = data;
  refused("validation_split came beside validation_data", split, some_x(), some_y());
  split.validation_data.reset();
  split.validation_split = 0.95;
  refused("leaves one part of 10 examples empty", split, some_x(), some_y());
  split.validation_split = -1.0;
  refused("wanted 0 (none) to less than 1", split, some_x(), some_y());
  FitOptions classes = kQuiet;
  classes.class_weight = {{-1, 1.0}};
  refused("class_weight gives the class -1", classes, some_x(), some_y());
  classes.class_weight = {{1, 2.0}};
  refused("but the examples have weights", classes,
          Example{.x = some_x(), .y = some_y(), .weight = torch::ones({10}, torch::kDouble)});
  FitOptions never = kQuiet;
  never.validation_freq = {2, 0};
  refused("validation_freq must be positive, got 0", never, some_x(), some_y());
}

}  // namespace
}  // namespace cohort::fit_options_test
