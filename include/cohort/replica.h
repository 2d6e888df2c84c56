// Replica: one copy of the computation, as the function given to Strategy::run() sees it.
#pragma once

#include <torch/types.h>

#include <any>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/communicator.h"
#include "cohort/device.h"
#include "cohort/values.h"

namespace cohort {

class Strategy;
class StrategyCore;

// Lives as long as its strategy; used by the one thread that runs it. Not copyable: pass it by reference.
// Every method that says "collective" must be called by all replicas, in the same order; a replica that returns or
// calls something else instead is found out and named (FailedPrecondition), and every wait ends at the strategy's
// timeout (DeadlineExceeded).
class Replica {
 public:
  Replica(StrategyCore& core, int local_id);
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  ~Replica();

  int id() const { return id_; }              // the number in the whole group, 0 .. num_replicas_in_sync - 1
  int local_id() const { return local_id_; }  // the number within this process
  // Returns the number of replicas of the whole group.
  int num_replicas_in_sync() const;
  // Returns the device that this replica computes on, as LibTorch names it.
  torch::Device device() const { return device_; }
  // Returns the device that this replica computes on.
  const LogicalDevice& logical_device() const;
  // Returns the strategy that the replica belongs to.
  Strategy strategy() const;

  // Returns the replica that this thread runs now, or null outside Strategy::run() and inside merge_call's function.
  static Replica* current();

  // Returns this replica's own stream of random numbers, seeded from (strategy seed, id()): two runs with one seed
  // agree, two replicas differ. The library's Dropout draws from it. In a pipeline each microbatch has one of its own,
  // seeded from the replica's.
  at::Generator& generator();

  // Returns the sum or mean over all replicas, as a new tensor; collective. Gradients flow through: the gradient of a
  // sum is the sum of all replicas' upstream gradients (a mean likewise). Shapes and dtypes must agree.
  torch::Tensor all_reduce(ReduceOp op, const torch::Tensor& value);
  std::vector<torch::Tensor> all_reduce(ReduceOp op, const std::vector<torch::Tensor>& values);

  // Concatenates the replicas' values along `axis`, in replica order; collective. Rank 1 or more; sizes may differ
  // along `axis` only. The gradient of the result is summed over the replicas, and each takes its own range of it.
  torch::Tensor all_gather(const torch::Tensor& value, int64_t axis = 0);

  // Returns the mean of per-example values over the true global batch: sum(each * weight) / (examples of this step on
  // all replicas, times the values an example). Differentiable and local: what it returns are this replica's shares,
  // whose sum over the replicas (Strategy::reduce with kSum, or the optimizer's gradient sum) is the mean. An empty
  // share gives 0. The number of examples is known when run() was given a batch of a distributed dataset (or a
  // PerReplica<Example>) of which no share is empty and `each` has one row an example. Otherwise (a loss that is
  // flattened to several values an example, say) the number of values is found by a collective of all replicas, those
  // with empty shares included.
  torch::Tensor global_mean(const torch::Tensor& each, const torch::Tensor& weight = {});

  // Returns the number of examples in this step over all replicas; nullopt when run() was not given a batch.
  std::optional<int64_t> global_batch_size() const;

  // Returns once every replica has called it; collective.
  void barrier();

  // Joins all replicas and calls fn(strategy, PerReplica<Args>...) once, in cross-replica context, on one thread;
  // collective. Returns what fn returns, or this replica's component when that is a PerReplica.
  template <typename Fn, typename... Args>
  auto merge_call(Fn&& fn, Args... args);

  // For modules of one's own that compute with parts of divided tensors (input_partition_dims of a strategy,
  // experimental_split_to_logical_devices): returns this replica's part of x as a plain tensor, with the `before` rows
  // before it along a dimension and the `after` rows behind it, which other replicas have, however many of these it
  // takes; zeros stand beyond the edges of the whole. Differentiable: the gradients of these rows are added where they
  // lie. Collective along the line. What is whole on every replica, such as a weight, is to enter by enter_axis()
  // (cohort/parallel/mesh_strategy.h) to be used beside parts. InvalidArgument: x is not divided along the dimension,
  // or a number is negative.
  torch::Tensor halo(const torch::Tensor& x, int64_t dim, int64_t before, int64_t after);
  // Returns the divided tensor of which `part` is this replica's part. It is divided as x, with x's sizes in the
  // dimensions that are cut. InvalidArgument: x is not divided, or the part has another rank or other sizes than x's in
  // these dimensions.
  torch::Tensor join(const torch::Tensor& part, const torch::Tensor& x);

  // Returns this end of the group of all replicas that share the global batch.
  Communicator& communicator() const;
  // Returns this replica's end of its line along an axis of the topology. NotFound: there is no such axis.
  Communicator& group(std::string_view axis) const;

 private:
  friend class Access;
  friend class StrategyCore;

  void seed(uint64_t seed);
  void begin_run(int64_t global_size, int64_t share_size);

  // Waits for all replicas; the leader alone runs `lead` with what each replica brought, then all go on.
  void meet(std::string_view what, void* mine, const std::function<void(std::span<void* const>)>& lead);

  StrategyCore& core_;
  int local_id_;
  int id_;
  torch::Device device_;
  at::Generator generator_;
  int64_t global_size_ = -1;  // the size of this run's batch; -1: none was given
  int64_t share_size_ = -1;   // -1: nothing can be told by it
};

}  // namespace cohort
