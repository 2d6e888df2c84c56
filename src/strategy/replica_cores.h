// The cores of a replica: several devices that run its program together, each with a part of the values that are
// divided: several devices of XLA, or the replicas of a line along an axis of the role kSpace. Wings divide.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
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
  // Divides a tensor in so many parts in each dimension, for a caller that errors name; and returns all of a tensor, on
  // each of the cores. Empty: a replica is one device.
  std::function<torch::Tensor(const torch::Tensor& tensor, const std::vector<int64_t>& dims, std::string_view caller)>
      divide = {};
  std::function<torch::Tensor(const torch::Tensor& tensor)> join = {};
  // Keeps the devices' cores as they are.
  std::shared_ptr<const void> held = nullptr;
};

// Divides a tensor of a replica among its cores. InvalidArgument: the tensor is not on a replica's device, or the
// parts do not fit its rank or the number of cores.
torch::Tensor split_among_cores(const StrategyCore& core, const torch::Tensor& tensor, const std::vector<int64_t>& dims,
                                std::string_view caller);
// Returns all of a tensor, on each of the cores.
torch::Tensor replicate_among_cores(const StrategyCore& core, const torch::Tensor& tensor, std::string_view caller);

// Says how inputs are divided among the replicas along a plan's axis. `speaker` is the strategy.
struct InputDivider {
  void (*divide)(StrategyPlan& plan, std::string_view speaker, const std::string& axis,
                 const std::vector<int64_t>& train_dims, const std::vector<int64_t>& eval_dims);
};

}  // namespace cohort
