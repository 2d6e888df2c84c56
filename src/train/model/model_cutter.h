// ModelCutter: cuts a model that is made of layers into the chunks that the plan of its strategy asks for. An
// extension.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "strategy/core.h"
#include "train/layers/layered_module.h"

namespace cohort {

// A replica's copy of a module, which is of layers.
struct LayeredCopy {
  std::shared_ptr<torch::nn::Module> module;
  LayeredModule* layers;  // the same
};

struct ModelCutter {
  // Cuts the copies for inputs of these shapes and dtypes. `speaker` opens messages.
  void (*cut)(const std::string& speaker, const StrategyCore& core, const std::vector<LayeredCopy>& copies,
              const std::vector<BuildContext>& inputs);
};

}  // namespace cohort
