// StepSource: yields the shares of one worker for each step.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cohort/dataset.h"
#include "cohort/distributed_dataset.h"

namespace cohort {

// The replicas that the input is for: replica `j` of worker `w` has number w * replicas + j.
struct InputGroup {
  int64_t workers = 1;
  int64_t worker = 0;
  int64_t replicas = 1;    // replicas of each worker
  bool ends_alone = true;  // this worker decides for all when the input ends
};

class StepSource {
 public:
  virtual ~StepSource() = default;
  // Returns one share for each local replica. Returns false at the end of this worker's data.
  virtual bool next(std::vector<Example>& shares) = 0;
  virtual nlohmann::json save(std::vector<torch::Tensor>& tensors) = 0;
  virtual void restore(const nlohmann::json& tree, const std::vector<torch::Tensor>& tensors) = 0;
};

// Returns the way in which a dataset is divided: for kAuto it is kFile if the dataset reads at least as many files as
// there are workers, else kData. One worker divides nothing, but the choice decides how batches are cut: see
// make_split_source(). InvalidArgument: kFile was asked for and is not possible.
AutoShard choose_shard(AutoShard asked, const Dataset& dataset, const InputGroup& group);

// Returns the source of a dataset of global batches. With kData, and where the size of the batches is not known, each
// batch is cut by itself into pieces of ceil(size / replicas); otherwise the sizes of the shares go on over the borders
// of batches. `whole`: each step is a batch as it comes, for the only replica.
std::unique_ptr<StepSource> make_split_source(const Dataset& dataset, IteratorOptions options, const InputGroup& group,
                                              AutoShard shard, bool whole);

// Returns the source of the user's own dataset of per-replica batches: each replica takes one element for each step.
std::unique_ptr<StepSource> make_per_replica_source(const Dataset& dataset, const IteratorOptions& options,
                                                    const InputGroup& group);

// Returns the number of steps that the sources of all workers make together in a pass, or a cardinality that is no
// number.
int64_t steps_of_split(const Dataset& dataset, const InputGroup& group, AutoShard shard, bool whole);

// Returns the number of steps of this worker's own source of per-replica batches, or a cardinality that is no number.
int64_t steps_per_replica(const Dataset& dataset, const InputGroup& group);

// Returns whether a step in which not all replicas get a batch is left out, as TensorFlow does for one worker if all
// batches are full (drop_remainder).
bool drops_partial_steps(const Dataset& dataset, const InputGroup& group);

}  // namespace cohort
