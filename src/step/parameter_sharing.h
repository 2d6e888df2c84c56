// ParameterSharing: lays out parameters that the replicas share (stage 3 of ShardingOptions). The wing that does so
// adds one (base/extension.h).
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cohort/optimizer.h"
#include "step/flat_parameters.h"
#include "strategy/core.h"
#include "strategy/shared_parameters.h"

namespace cohort {

struct ParameterSharing {
  // Returns the unit of each trainable parameter of a module, by tensor_id(); neighbours of less than `min_bytes` are
  // put together.
  std::unordered_map<const void*, std::size_t> (*units)(const torch::nn::Module& root, int64_t min_bytes);
  // Returns the cuts between the owners' slices of a group, which is a unit.
  std::vector<int64_t> (*cuts)(const FlatParameters& flat, const FlatGroup& group, const Optimizer& rule,
                               const StrategyCore& core);
  // Makes the units, whose slices are zero. `options` are the dtype and device of each unit on each local replica,
  // [unit][replica].
  std::shared_ptr<SharedParameters> (*make)(std::shared_ptr<StrategyCore> core, std::vector<ParameterUnit> units,
                                            std::vector<std::vector<torch::TensorOptions>> options);
};

}  // namespace cohort
