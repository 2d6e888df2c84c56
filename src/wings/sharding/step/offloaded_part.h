// OffloadedPart: the part of the parameters that a replica on a card updates in the host's memory, where its states lie
// (ShardingOptions::offload_states). The card has a copy of all parameters, or in stage 3 none.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "device/backend.h"
#include "step/flat_parameters.h"
#include "wings/sharding/step/shard_plan.h"

namespace cohort {

class OffloadedPart {
 public:
  // Takes the part of `owner`, which is local replica `copy`; `flat` outlives it.
  OffloadedPart(const FlatParameters& flat, const ShardPlan& plan, int owner, std::size_t copy,
                const DeviceBackend& backend);

  // Returns the part's elements of a group, flat.
  const torch::Tensor& values(std::size_t group) const { return values_[group]; }
  // Makes them what the card's copy has, to which the program may have written. Waits for the card.
  void fetch();
  // Gives them to the card's copy, behind the work that the calling thread has given the card. They are not written to
  // before fetch().
  void send() const;

 private:
  // A slice of a unit.
  struct Pair {
    torch::Tensor card;
    torch::Tensor here;
  };

  std::vector<torch::Tensor> values_;  // [group]
  std::vector<Pair> pairs_;            // none where the replicas share the parameters
  std::unique_ptr<DeviceStream> stream_;
};

}  // namespace cohort
