// NamedModule: a model of several inputs and outputs.
#pragma once

#include <torch/nn/module.h>

#include "cohort/example.h"

namespace cohort::models {

// A module that takes several inputs and returns several outputs, by name. Not thread-safe.
class NamedModule : public torch::nn::Module {
 public:
  // Returns the outputs for these inputs, of both of which dimension 0 is the batch.
  virtual NamedTensors forward(const NamedTensors& inputs) = 0;
};

}  // namespace cohort::models
