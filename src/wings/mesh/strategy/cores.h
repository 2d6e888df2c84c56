// The cores of a replica: several devices that run its program together, each with a part of the values that are
// divided: several devices of XLA, or the replicas of a line along an axis of the role kSpace.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

class StrategyCore;
struct StrategyPlan;

struct ReplicaCores {
  int count = 1;
  // The parts in each dimension in which an input of a model is divided in training, and in evaluation and prediction.
  // Empty: every core has all of it.
  std::vector<int64_t> train_dims = {};
  std::vector<int64_t> eval_dims = {};
  // Keeps the devices' cores as they are.
  std::shared_ptr<const void> held = nullptr;
};

// Says how the inputs are divided among the replicas along a plan's axis. InvalidArgument: the parts are not as many as
// these replicas, or examples or channels would be cut; `speaker` is the strategy.
void divide_inputs_along(StrategyPlan& plan, std::string_view speaker, const std::string& axis,
                         const std::vector<int64_t>& train_dims, const std::vector<int64_t>& eval_dims);

// Divides a tensor of a replica among its cores. InvalidArgument: the tensor is not on a replica's device, or the
// parts do not fit its rank or the number of cores.
torch::Tensor split_among_cores(const StrategyCore& core, const torch::Tensor& tensor, const std::vector<int64_t>& dims,
                                std::string_view caller);
// Returns all of a tensor, on each of the cores.
torch::Tensor replicate_among_cores(const StrategyCore& core, const torch::Tensor& tensor, std::string_view caller);

}  // namespace cohort
