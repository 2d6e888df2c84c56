// DeviceBuckets: the gradients of replicas on devices, which are added up in buckets while backward still computes
// those of the layers before (Li et al., PyTorch Distributed, VLDB 2020), over the replicas of this process and then
// over other processes, on streams beside the devices' work. No thread waits for a device, and none for another replica
// before its own backward has ended.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collective/devices/sums_beside.h"
#include "collective/gradient_wire.h"
#include "step/exchange/buckets.h"
#include "step/exchange/watched_backward.h"
#include "step/flat_gradients.h"
#include "step/flat_parameters.h"
#include "strategy/core.h"

namespace cohort {

// Returns the buckets of gradients that come in this order, which has all parameters.
using PlanBuckets = std::function<std::vector<Bucket>(std::span<const std::size_t> order)>;

class DeviceBuckets {
 public:
  // `gradients` gets the sums. The first step plans the buckets, by the order in which the backward of the first
  // replica of all processes brings its gradients; those of that step leave after it.
  DeviceBuckets(StrategyCore& core, FlatParameters& flat, FlatGradients& gradients, std::shared_ptr<SumsBeside> sums,
                GradientWire wire, PlanBuckets plan);
  DeviceBuckets(const DeviceBuckets&) = delete;
  DeviceBuckets& operator=(const DeviceBuckets&) = delete;

  // Has what this step of a replica does wait for sums of an earlier one that failed. The following do so themselves.
  void begin_step(int local_id);
  // Runs backward; a bucket leaves when the last replica has it. FailedPrecondition: a gradient comes more often than
  // it did in the first step (reentrant backward).
  void backward(int local_id, const torch::Tensor& loss);
  // A collective of the local replicas. Brings the gradients that have not left yet, one a parameter, undefined for
  // zero; null: they are in the flat gradients. Afterwards the sums of all buckets have begun.
  void complete(int local_id, const std::vector<torch::Tensor>* gradients);
  // Makes the replica's device wait for the sums, bucket by bucket, in the order of the plan, and calls `take` for each
  // with the parameters of which all sums are there then, in the order of the flat memory.
  void each(int local_id, const std::function<void(std::span<const std::size_t> parameters)>& take);

  // The parts of steps whose sums are made in the order of the devices' work, by others.
  // The same as begin_step() for such a step.
  void begin_apart(int local_id);
  // Returns how many buckets there are; none before the plan.
  std::size_t size() const { return buckets_.size(); }
  // Returns the runs of a bucket in a replica's flat gradients, and as they travel.
  const std::vector<torch::Tensor>& runs(int local_id, std::size_t bucket) const {
    return buckets_[bucket].home[static_cast<std::size_t>(local_id)];
  }
  std::vector<torch::Tensor> packed(int local_id, std::size_t bucket) const;
  // Returns what adds up.
  const std::shared_ptr<SumsBeside>& sums() const { return sums_; }

 private:
  // Tells the steps apart, also from one that has failed: the run() and the step in it.
  struct Tag {
    uint64_t run = 0;
    int64_t step = 0;
    friend bool operator==(const Tag&, const Tag&) = default;
  };
  // A replica's step. Its own thread uses it, and in between that of its backward.
  struct Own {
    std::optional<Tag> tag;            // nothing before the first step
    int64_t steps = 0;                 // those completed in this run
    bool ended = true;                 // the sums of the last step have been waited for
    std::vector<int> came;             // [parameter]: how often
    std::vector<std::size_t> order;    // of the first step
    std::vector<std::size_t> missing;  // [bucket]: parameters
  };
  struct Travelling {
    Bucket plan;
    // In a step, guarded by mutex_.
    std::size_t came = 0;                          // replicas
    SumsBeside::Tensors sent;                      // [replica]: the runs as they travel
    std::vector<PointPtr> ready;                   // [replica]
    std::vector<std::vector<torch::Tensor>> home;  // [replica]: the runs, in its flat gradients
    SumsBeside::Ends ends;                         // [replica]; empty before the first sum
  };

  Own& own(int local_id) { return owns_[static_cast<std::size_t>(local_id)]; }
  void came(int local_id, std::size_t parameter);
  void put(int local_id, std::size_t parameter, const torch::Tensor& gradient);
  void has(int local_id, std::size_t parameter);
  void leave(int local_id, std::size_t bucket);
  void begin_sums();
  void plan_by_first_step();
  void put_missing(int local_id, const std::vector<torch::Tensor>* gradients);
  void wait(int local_id, const std::vector<PointPtr>& ends) const;

  StrategyCore& core_;
  FlatParameters& flat_;
  FlatGradients& gradients_;
  std::shared_ptr<SumsBeside> sums_;
  GradientWire wire_;
  PlanBuckets plan_;
  std::size_t replicas_;
  std::vector<Travelling> buckets_;                   // none before the plan
  std::vector<std::vector<std::size_t>> buckets_of_;  // [parameter]
  std::vector<int> expected_;                         // [parameter]: how often its gradient comes until it is whole
  std::vector<Own> owns_;                             // [replica]
  std::mutex mutex_;
  std::optional<Tag> tag_;  // of the step that the buckets are in; guarded by mutex_
  std::size_t begun_ = 0;   // sums of it; guarded by mutex_
  WatchedBackward watched_;
};

}  // namespace cohort
