// Models whose parameters a mesh cuts, their training, and what it has to come to.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "cohort/cohort.h"
#include "tests/equivalence/outcomes.h"

namespace cohort::equivalence::mesh_runs {

inline constexpr int64_t kEpochs = 4;
inline constexpr int64_t kRows = 4 * 12 + 1;  // five steps a pass; the last batch leaves a share empty
inline constexpr int64_t kClasses = 6;

// Every layer is a unit in stage 3.
inline ShardingOptions shared_states(int stage) {
  ShardingOptions options{.stage = stage};
  if (stage == 3) options.min_unit_bytes = 0;
  return options;
}

struct Net {
  std::string name;
  std::vector<Layer> layers;
  LayoutMap layout;
  bool indices = false;  // of a vocabulary of 12 words, four an example
  Shape example = {6};   // of numbers
};

inline std::vector<Layer> perceptron() {
  return {Dense(12, Activation::kTanh), Dense(18, Activation::kSoftmax), Dense(kClasses)};
}

inline std::vector<Net> nets() {
  return {
      {"columns", perceptron(), {{"dense.weight", {"model", ""}}, {"dense.bias", {"model"}}}},
      {"columns_of_softmax", perceptron(), {{"dense_1\\.weight", {"model", ""}}, {"dense_1\\.bias", {"model"}}}},
      {"rows", perceptron(), {{"dense_[12].weight", {"", "model"}}}},
      {"columns_then_rows",
       {Dense(12), Activation(Activation::kTanh), Dense(18, Activation::kGelu), Dense(kClasses)},
       {{"dense(_2)?\\.weight", {"model", ""}}, {"dense(_2)?\\.bias", {"model"}}, {"dense_1\\.weight", {"", "model"}}}},
      {"vocabulary",
       {Embedding(12, 6), Flatten(), Dense(12, Activation::kRelu), Dense(kClasses)},
       {{"embedding", {"model", ""}},
        {"dense\\.weight", {"model", ""}},
        {"dense\\.bias", {"model"}},
        {"dense_1\\.weight", {"", "model"}}},
       true},
      {"heads",
       {Embedding(12, 8), MultiHeadAttention({.num_heads = 6, .key_dim = 2, .use_causal_mask = true}), Flatten(),
        Dense(kClasses)},
       {{"(query|key|value)\\.weight", {"model", ""}},
        {"(query|key|value)\\.bias", {"model"}},
        {"output\\.weight", {"", "model"}}},
       true},
      {"rows_of_words", {Embedding(12, 6), Flatten(), Dense(kClasses)}, {{"embedding", {"", "model"}}}, true},
  };
}

// A generator of the caller's own: workers that are threads share LibTorch's, from which layers draw at any time.
inline at::Generator generator(uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

inline Dataset batches(const Net& net) {
  const at::Generator own = generator(7);
  Shape numbers = net.example;
  numbers.insert(numbers.begin(), kRows);
  const torch::Tensor x =
      net.indices ? torch::randint(12, {kRows, 4}, own, torch::kLong) : torch::randn(numbers, own, torch::kDouble);
  return Dataset::from_tensor_slices(x, torch::randint(kClasses, {kRows}, own, torch::kLong)).batch(12);
}

// Every run begins with the same values.
inline Sequential made(const Net& net, const Optimizer& rule) {
  Sequential model(net.layers, {.dtype = torch::kDouble});
  model.build(net.indices ? Shape{4} : net.example, net.indices ? torch::kLong : torch::kDouble);
  NamedTensors weights = model.weights();
  const at::Generator own = generator(3);
  for (auto& [name, value] : weights) {
    const bool learned = name.find("running_") == std::string::npos && value.is_floating_point();
    if (learned) value = torch::randn(value.sizes(), own, torch::kDouble) * 0.4;
  }
  model.set_weights(weights);
  model.compile({.optimizer = rule,
                 .loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {SparseCategoricalAccuracy()}});
  return model;
}

inline Outcome train(const Net& net, Sequential model, int64_t epochs = kEpochs, int64_t first = 0) {
  return outcome_of(model, batches(net), epochs, first);
}

inline Outcome under(const Strategy& strategy, const Net& net, const Optimizer& rule) {
  const auto scope = strategy.scope();
  return train(net, made(net, rule));
}

}  // namespace cohort::equivalence::mesh_runs
