// StepSource: where one worker's shares of each step come from.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cohort/dataset.h"
#include "cohort/distributed_dataset.h"

namespace cohort {

// Who the input is for: replica `j` of worker `w` has number w * replicas + j.
struct InputGroup {
  int64_t workers = 1;
  int64_t worker = 0;
  int64_t replicas = 1;  // of each worker
};

class StepSource {
 public:
  virtual ~StepSource() = default;
  // One share a local replica; false at the end of this worker's data.
  virtual bool next(std::vector<Example>& shares) = 0;
  virtual nlohmann::json save(std::vector<torch::Tensor>& tensors) = 0;
  virtual void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) = 0;
};

// kFile where the dataset reads at least as many files as there are workers, else kData; kOff with one worker.
// InvalidArgument: kFile was asked for and is not possible.
AutoShard choose_shard(AutoShard asked, const Dataset& dataset, const InputGroup& group);

// Of global batches. `whole`: each step is a batch as it comes, for the only replica.
std::unique_ptr<StepSource> make_split_source(const Dataset& dataset, IteratorOptions options, const InputGroup& group,
                                              AutoShard shard, bool whole);

// Of the user's own dataset of per-replica batches: each replica takes one element a step.
std::unique_ptr<StepSource> make_per_replica_source(const Dataset& dataset, const IteratorOptions& options,
                                                    std::size_t replicas);

}  // namespace cohort
