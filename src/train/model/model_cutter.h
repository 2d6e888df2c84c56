// ModelCutter: cuts a Sequential into the chunks that the plan of its strategy asks for. An extension.
#pragma once

#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"
#include "strategy/core.h"
#include "train/layers/sequential_module.h"

namespace cohort {

struct ModelCutter {
  // Cuts the copies for an input of this shape and dtype. `speaker` opens messages.
  void (*cut)(const std::string& speaker, const StrategyCore& core, const std::vector<SequentialModule*>& copies,
              const BuildContext& context);
};

}  // namespace cohort
