// What the tests of training steps on cards train: strategies with rules, and a small model.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/cohort.h"

namespace cohort::gpu {

struct Program {
  const char* name;
  int cards;
  std::function<Strategy()> strategy;
  Optimizer rule;
  int64_t segments = 0;  // of graphs, a step, in all replicas, where it runs as graphs
};

inline Strategy on(const std::vector<std::string>& devices, const MirroredOptions& more = {}) {
  MirroredOptions options = more;
  options.devices = devices;
  return MirroredStrategy(options);
}

// Examples of two classes, shuffled in the same way each time, in batches of 9.
inline Dataset batches_of_waves(int64_t rows) {
  const torch::Tensor x = torch::sin(torch::arange(rows * 4, torch::kFloat)).view({rows, 4});
  return Dataset::from_tensor_slices({.x = x, .y = (x.sum(1) > 0).to(torch::kLong)})
      .shuffle(rows, {.seed = 6})
      .batch(9);
}

// A classifier for them, with the same weights each time.
inline Sequential small_model(const Optimizer& rule, PrecisionPolicy precision = PrecisionPolicy::kFloat32) {
  Sequential model({Dense(16, Activation::kRelu), Dropout(0.1), Dense(2)});
  model.build({4});
  NamedTensors weights = model.weights();
  for (auto& [name, tensor] : weights) {
    tensor = torch::cos(torch::arange(tensor.numel(), torch::kFloat)).view(tensor.sizes()) / 2;
  }
  model.set_weights(weights);
  model.compile(
      {.optimizer = rule, .loss = SparseCategoricalCrossentropy({.from_logits = true}), .precision = precision});
  return model;
}

}  // namespace cohort::gpu
