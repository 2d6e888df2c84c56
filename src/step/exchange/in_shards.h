// ExchangeInShards: what an exchange does whose replicas keep the gradients of their shards alone. Those of several
// calls are added up there, by scatter() and update() in place of Exchange::step().
#pragma once

#include <torch/types.h>

#include <vector>

#include "cohort/replica.h"
#include "optimizer/update_rule.h"
#include "step/verdict.h"

namespace cohort {

class ExchangeInShards {
 public:
  virtual ~ExchangeInShards() = default;

  // A collective, which takes the same as Exchange::step(): returns the sums of the slices that the replica owns.
  virtual std::vector<torch::Tensor> scatter(Replica& replica, std::vector<torch::Tensor> gradients, bool reduced) = 0;
  // Updates as Exchange::step() does, by such sums.
  virtual Verdict update(Replica& replica, std::vector<torch::Tensor> sums, StepContext context) = 0;
  // Returns such sums as gradients, one a parameter, with zeros where other replicas have the sums; undefined where
  // they have all of them.
  virtual std::vector<torch::Tensor> in_place(int local_id, const std::vector<torch::Tensor>& sums) const = 0;
};

}  // namespace cohort
