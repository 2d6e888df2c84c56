// ScatteredGradients: the gradients of replicas that share the states of an optimizer. The sum of each message goes to
// its owners alone, slice by slice.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "step/flat_parameters.h"
#include "step/sharding/shard_plan.h"
#include "strategy/core.h"

namespace cohort {

class ScatteredGradients {
 public:
  // The owners of the plan are the replicas along the axis of the strategy's ShardingOptions.
  ScatteredGradients(StrategyCore& core, const FlatParameters& flat, const ShardPlan& plan);

  // A collective of all replicas in sync. Takes the gradients of a local replica, one a parameter, undefined for zero,
  // and returns the sums of its shard, flat, one a group. Gradients are given up message by message.
  std::vector<torch::Tensor> sums(int local_id, std::vector<torch::Tensor> gradients);
  // Returns the shard of gradients that are sums already.
  std::vector<torch::Tensor> own(int local_id, const std::vector<torch::Tensor>& gradients) const;
  // Returns the most bytes of gradients, messages and sums that a local replica had at once in its last step.
  int64_t peak_bytes(int local_id) const { return peaks_[static_cast<std::size_t>(local_id)]; }

 private:
  int owner_of(int local_id) const;
  // Returns a unit's gradients in a flat tensor of this size, with zeros where there are none.
  torch::Tensor pack(std::size_t unit, int local_id, const std::vector<torch::Tensor>& gradients, int64_t size) const;
  // Drops the gradients that no unit after this one has elements of.
  void give_up(std::size_t unit, std::vector<torch::Tensor>& gradients) const;
  torch::Tensor scatter(std::size_t unit, int local_id, const std::vector<torch::Tensor>& gradients) const;
  int64_t message_bytes(std::size_t unit) const;
  std::vector<torch::Tensor> empty_shard(int local_id) const;

  StrategyCore& core_;
  const FlatParameters& flat_;
  const ShardPlan& plan_;
  std::vector<int64_t> peaks_;  // [local replica]
};

}  // namespace cohort
