// Strategy: decides where variables live (placement), what runs the replicas (launch) and how they agree (exchange).
//
//   cohort::MirroredStrategy strategy({.devices = cohort::cpu_devices(2)});
//   auto net = strategy.mirror([] { return Net(); });
//   auto losses = strategy.run([&](cohort::Replica& replica, const cohort::Example& share) { ... }, batch);
//   auto mean = strategy.reduce(cohort::ReduceOp::kSum, losses);
#pragma once

#include <torch/types.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cohort/device.h"
#include "cohort/device_mesh.h"
#include "cohort/example.h"
#include "cohort/exchange_options.h"
#include "cohort/mirrored.h"
#include "cohort/replica.h"
#include "cohort/topology.h"
#include "cohort/values.h"
#include "cohort/variable.h"

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace cohort {

class Dataset;
class DistributedDataset;
class MirroredOptimizer;
class Optimizer;
class ScriptModule;
struct InputOptions;

// The argument that Strategy::values_from_function() passes for each replica.
struct ValueContext {
  int replica_id_in_sync_group = 0;  // the replica in the whole group, from 0
  int num_replicas_in_sync = 1;      // replicas of the whole group
};

// The argument that Strategy::distribute_from_function() passes for each input pipeline.
struct InputContext {
  int num_input_pipelines = 1;   // one for each worker
  int input_pipeline_id = 0;     // this worker's, from 0
  int num_replicas_in_sync = 1;  // replicas of the whole group

  // global / num_replicas_in_sync; InvalidArgument when it does not divide.
  int64_t per_replica_batch_size(int64_t global_batch_size) const;
};

// Makes a strategy current for this thread while it lives. Entering the same strategy again is allowed; entering
// another one while one is active: FailedPrecondition. Leave in the opposite order (as C++ blocks do).
class [[nodiscard]] StrategyScope {
 public:
  StrategyScope(const StrategyScope&) = delete;
  StrategyScope& operator=(const StrategyScope&) = delete;
  ~StrategyScope();

 private:
  friend class Strategy;
  explicit StrategyScope(std::shared_ptr<StrategyCore> core);

  std::shared_ptr<StrategyCore> core_;
  std::optional<DeviceScope> device_;
};

namespace detail {

// A part of a replica's share: rows of it.
struct SharePart {
  std::size_t number = 0;  // from 0
  int64_t begin = -1;      // the first row; -1: there is no batch
  int64_t end = -1;        // the row behind the last one
};

// One call of run(), kept alive by whoever still works on it.
class Job : public std::enable_shared_from_this<Job> {
 public:
  virtual ~Job() = default;
  virtual void run(Replica& replica) = 0;

  // In place of run(): begins with so many parts of the replica's share, runs one of them, at any time and in any
  // thread, and puts together what they have returned.
  virtual void begin_parts(const Replica& replica, std::size_t count) = 0;
  virtual void run_part(Replica& replica, const SharePart& part) = 0;
  virtual void join_parts(const Replica& replica, const std::vector<SharePart>& parts) = 0;

  int64_t global_size = -1;          // examples of this step on all replicas; -1: no batch among the arguments
  std::vector<int64_t> share_sizes;  // the sizes of the local replicas' shares, when global_size is known
  bool some_empty = false;           // the share of some replica is empty
};

void run_job(StrategyCore& core, const std::shared_ptr<Job>& job);
int num_local_replicas(const StrategyCore& core);

// Notes the sizes of a batch among run()'s arguments; `global_size` is -1 where the batch does not say. `some_empty`: a
// share of some worker is empty.
void note_batch(const StrategyCore& core, Job& job, const PerReplica<Example>& batch, int64_t global_size,
                bool some_empty);

// Whether an argument is tensors: one, an Example, or a list, a pair or a tuple of such.
template <typename T>
struct HoldsTensors : std::bool_constant<std::is_same_v<T, torch::Tensor> || std::is_same_v<T, Example>> {};
template <typename T>
struct HoldsTensors<std::vector<T>> : HoldsTensors<T> {};
template <typename... T>
struct HoldsTensors<std::tuple<T...>> : std::disjunction<HoldsTensors<T>...> {};
template <typename A, typename B>
struct HoldsTensors<std::pair<A, B>> : std::disjunction<HoldsTensors<A>, HoldsTensors<B>> {};

// Moves the host's tensors in an argument to the replica's device.
void move_to_replica(torch::Tensor& tensor, const Replica& replica);
void move_to_replica(Example& example, const Replica& replica);
template <typename T>
void move_to_replica(T& value, const Replica& replica) {
  if constexpr (!HoldsTensors<T>::value) {
    return;
  } else if constexpr (requires { value.begin(); }) {
    for (auto& each : value) move_to_replica(each, replica);
  } else {
    std::apply([&](auto&... each) { (move_to_replica(each, replica), ...); }, value);
  }
}
// The form in which a replica's function gets an argument: const, so that it binds to auto&, too.
template <typename T>
using Seen = std::conditional_t<HoldsTensors<T>::value, const T, const T&>;
template <typename T>
Seen<T> seen_by(const T& value, const Replica& replica) {
  if constexpr (HoldsTensors<T>::value) {
    T own = value;
    move_to_replica(own, replica);
    return own;
  } else {
    return value;
  }
}

// Returns what a replica sees of an argument: its component of a PerReplica (or of a class derived from one), anything
// else whole; tensors on its device.
template <typename T>
Seen<T> for_replica(const PerReplica<T>& value, const Replica& replica) {
  return seen_by(value[replica], replica);
}
template <typename T>
const T& for_replica(const std::reference_wrapper<T>& value, const Replica&) {
  return value.get();
}
template <typename T>
Seen<T> for_replica_or_whole(const T& value, const Replica& replica, long) {
  return seen_by(value, replica);
}
template <typename T>
auto for_replica_or_whole(const T& value, const Replica& replica, int) -> decltype(for_replica(value, replica)) {
  return for_replica(value, replica);
}

template <typename Fn, typename... Args>
auto call_on(Fn& fn, Replica& replica, const Args&... args) {
  if constexpr (std::is_invocable_v<Fn&, Replica&, decltype(for_replica_or_whole(args, replica, 0))...>) {
    return fn(replica, for_replica_or_whole(args, replica, 0)...);
  } else {
    return fn(for_replica_or_whole(args, replica, 0)...);
  }
}

template <typename Fn, typename... Args>
using CallResult =
    std::decay_t<decltype(call_on(std::declval<Fn&>(), std::declval<Replica&>(), std::declval<const Args&>()...))>;

}  // namespace detail

// A handle, cheap to copy: copies are the same strategy. Its methods are called from one thread at a time, in
// cross-replica context (outside run()); from inside a replica they throw FailedPrecondition and name what to use
// instead.
class Strategy {
 public:
  // Returns the strategy's name as the command line has it, such as "mirrored".
  std::string_view name() const;
  // Returns the number of replicas over all processes, which share the global batch.
  int num_replicas_in_sync() const;
  // Returns the number of replicas in this process.
  int num_local_replicas() const;
  // Returns the replicas of all processes, on named axes.
  const Topology& topology() const;
  // Returns the devices of the local replicas, in replica order.
  const std::vector<LogicalDevice>& worker_devices() const;
  // Returns the devices where the variables of each local replica live: under central storage the parameter device,
  // else as worker_devices().
  const std::vector<LogicalDevice>& parameter_devices() const;
  // Returns the name of the cross-device ops in use: "ring", "nccl", ...
  std::string_view cross_device_ops() const;
  // Returns whether this process writes the checkpoints and the summaries.
  bool should_checkpoint() const;
  // Returns whether this process writes the summaries and shows the progress.
  bool should_save_summary() const;

  // Makes the strategy current for this thread until the returned object is destroyed; models that are made meanwhile
  // belong to it.
  StrategyScope scope() const { return StrategyScope(core_); }

  // Seeds the replicas' random streams (Replica::generator()); they start from LibTorch's own seed otherwise. On
  // devices of XLA it seeds the streams of torch::dropout and the like, too.
  void set_seed(uint64_t seed) const;

  // Calls fn once a replica, in parallel, as fn(replica, args...) or fn(args...). A PerReplica argument is replaced by
  // the replica's component; everything else is passed whole, as const. Tensors of the host, also in an Example, a list
  // or a tuple, are moved to the replica's device. Arguments and fn are copied once (std::ref avoids it). Returns
  // PerReplica<result> (void when fn returns nothing). If a replica throws, the others' collectives are cancelled and
  // its own exception reaches the caller; the strategy can be used again.
  template <typename Fn, typename... Args>
  auto run(Fn&& fn, Args&&... args) const;

  // Calls step(0) to step(steps - 1), which call run() for a training step each. On devices of XLA, steps that are
  // alike begin as one launch, a loop on the devices (docs/tpu.md). InvalidArgument: steps is negative. An exception of
  // step() ends the loop, after the steps that have come.
  void run_loop(int64_t steps, const std::function<void(int64_t)>& step) const;

  // Divides a tensor, within run(), among the devices that compute an example together: the cores of a replica of XLA,
  // or the replicas of a line that have a part of each input (input_partition_dims). partition_dimensions are the parts
  // in each dimension, and the devices have them in row-major order. Sizes need not divide; all replicas of a line give
  // the same tensor. Its sizes stay those of the whole. Differentiable. InvalidArgument: the tensor is not on a
  // replica's device, there is not one number for each dimension, or their product is not the number of devices.
  torch::Tensor experimental_split_to_logical_devices(const torch::Tensor& tensor,
                                                      const std::vector<int64_t>& partition_dimensions) const;
  // Says that every one of these devices has all of a tensor: parts are gathered, and each gets its part of the
  // gradient. InvalidArgument: the tensor is not on a replica's device.
  torch::Tensor experimental_replicate_to_logical_devices(const torch::Tensor& tensor) const;

  // Reduces elementwise over all replicas; shapes must agree. The result is on the first replica's device.
  torch::Tensor reduce(ReduceOp op, const PerReplica<torch::Tensor>& value) const;

  // Reduces over dimensions `axis` too: with kSum each replica's value is summed over them first; with kMean the sum is
  // divided by the total size of these dimensions over all replicas, so that uneven and empty shares weigh correctly.
  // Negative dimensions count from the end; out of range: InvalidArgument. No dimensions: elementwise, as above.
  torch::Tensor reduce(ReduceOp op, const PerReplica<torch::Tensor>& value, at::IntArrayRef axis) const;
  template <std::integral Axis>  // deduced, so that {} is the empty list
  torch::Tensor reduce(ReduceOp op, const PerReplica<torch::Tensor>& value, Axis axis) const {
    const auto dimension = static_cast<int64_t>(axis);
    return reduce(op, value, at::IntArrayRef(&dimension, 1));
  }
  // Reduces a value that is the same on all replicas: kMean returns it, kSum over several replicas is an
  // InvalidArgument.
  torch::Tensor reduce(ReduceOp op, const torch::Tensor& value) const;

  // Reduces as reduce(), with the result on the given device (StrategyExtended).
  torch::Tensor reduce_to(ReduceOp op, const PerReplica<torch::Tensor>& value, torch::Device destination) const;
  // Reduces several values, each with a destination of its own.
  std::vector<torch::Tensor> batch_reduce_to(
      ReduceOp op, const std::vector<std::pair<PerReplica<torch::Tensor>, torch::Device>>& values) const;

  // Concatenates the replicas' values along `axis`, in replica order. Rank 1 or more.
  torch::Tensor gather(const PerReplica<torch::Tensor>& value, int64_t axis) const;

  // Returns the values that this process holds, by local replica; of a GlobalBatch its shares. A plain value becomes a
  // vector of one.
  template <typename T>
  const std::vector<T>& local_results(const PerReplica<T>& value) const {
    return value.values();
  }
  template <detail::PlainValue T>
  std::vector<T> local_results(const T& value) const {
    return {value};
  }

  // Calls fn(ValueContext) once for each local replica, and returns a PerReplica of the results.
  template <typename Fn>
  auto values_from_function(Fn&& fn) const;

  // Splits each global batch of a dataset among the replicas, prefetched; the dataset must be batched
  // (InvalidArgument).
  DistributedDataset distribute(const Dataset& dataset) const;
  DistributedDataset distribute(const Dataset& dataset, const InputOptions& options) const;
  // Calls fn once for each input pipeline; it returns a dataset of per-replica batches.
  DistributedDataset distribute_from_function(const std::function<Dataset(const InputContext&)>& fn) const;
  DistributedDataset distribute_from_function(const std::function<Dataset(const InputContext&)>& fn,
                                              const InputOptions& options) const;
  // Returns what distribute_from_function() passes to its function.
  InputContext input_context() const;

  // Builds one copy of a module for each replica. factory() returns a module holder or a shared_ptr, and is called once
  // for each replica on the replica's device. All copies start from the values of the first one.
  template <typename Factory>
  auto mirror(Factory&& factory) const -> Mirrored<std::decay_t<std::invoke_result_t<Factory&>>>;

  // Mirrors a module from Python's: every replica gets a copy of it; see train/script_module.h.
  Mirrored<std::shared_ptr<ScriptModule>> mirror(const torch::jit::Module& module) const;

  // Makes a variable with this initial value; see variable.h.
  Variable variable(const torch::Tensor& initial, const VariableOptions& options = {}) const;
  // Returns the variables that were made by this strategy and are still in use, in the order in which they were made.
  // Checkpoints of a Model or a Controller hold them, by their names.
  std::vector<Variable> variables() const;
  // Returns whether this strategy made the variable.
  bool owns(const Variable& variable) const;

  // Makes an optimizer for the trainable parameters of a mirrored module; see optimizer.h.
  MirroredOptimizer optimizer(const MirroredModule& module, const Optimizer& rule) const;
  // Makes one for variables of this strategy, whose names the optimizer's state has. They get the sum of the replicas'
  // gradients as a module's parameters do, whatever their aggregation, which is about assignments. InvalidArgument: a
  // variable that is not trainable or belongs to another strategy, an empty name, or two alike. Unimplemented:
  // parameter servers, where each variable is kept and changed by assignments alone.
  MirroredOptimizer optimizer(const std::vector<Variable>& variables, const Optimizer& rule) const;

 protected:
  explicit Strategy(std::shared_ptr<StrategyCore> core) : core_(std::move(core)) {}

 private:
  friend class Access;

  void require_cross_replica(std::string_view method) const;
  MirroredModule mirror_modules(const std::function<std::shared_ptr<torch::nn::Module>()>& factory) const;
  ValueContext value_context(int local_replica) const;

  std::shared_ptr<StrategyCore> core_;
};

// Returns the thread's current strategy: the innermost scope's, or a default one (one replica on the current device).
Strategy current_strategy();
// Returns whether a scope is entered on this thread.
bool has_strategy();
// Returns true inside a scope and inside merge_call's function, false in a replica and without a scope.
bool in_cross_replica_context();

// No distribution ("off"): one replica on the current device; distribute() yields the dataset's own batches.
class DefaultStrategy : public Strategy {
 public:
  DefaultStrategy();
};

// Places everything on one device.
class OneDeviceStrategy : public Strategy {
 public:
  // NotFound: there is no such device.
  explicit OneDeviceStrategy(const std::string& device);
};

struct MirroredOptions {
  // The devices, as device strings, each of which gets a replica. If the list is empty it is every visible GPU, or each
  // logical CPU if there is none. cpu_devices(n) makes a list for CPU replicas. InvalidArgument: a device is there
  // twice. NotFound: it does not exist.
  std::vector<std::string> devices = {};
  ExchangeOptions exchange = {};  // options of the exchange of gradients
  ShardingOptions sharding = {};  // the states that the replicas share
  // The devices on several axes that carry the batch, instead of `devices`. InvalidArgument: both came, or an axis
  // divides something else.
  std::optional<DeviceMesh> mesh = std::nullopt;
  // The parts in each dimension in which the devices of a line, as many as there are parts, compute an example
  // together: MeshOptions::input_partition_dims, for a mesh of the axes "batch" and "space". InvalidArgument: the
  // number of devices is no multiple of the parts, or a mesh came too.
  std::vector<int64_t> input_partition_dims = {};
  // The same for evaluate() and predict(); empty: input_partition_dims.
  std::vector<int64_t> eval_input_partition_dims = {};
};

// Synchronous data parallelism in one process: a copy of every variable on every replica, gradients all-reduced.
class MirroredStrategy : public Strategy {
 public:
  explicit MirroredStrategy(const MirroredOptions& options = {});
};

struct CentralStorageOptions {
  // The devices of the replicas. If the list is empty it is every visible GPU, or the CPU if there is none.
  std::vector<std::string> compute_devices = {};
  // The device of the variables. If it is empty it is the compute device if there is only one, else the CPU.
  std::string parameter_device;
  // Options of the exchange of gradients between the replicas. Sums are computed on the parameter device;
  // InvalidArgument: cross_device_ops asks for another way.
  ExchangeOptions exchange = {};
};

// Synchronous data parallelism with one copy of the variables, on the parameter device.
class CentralStorageStrategy : public Strategy {
 public:
  explicit CentralStorageStrategy(const CentralStorageOptions& options = {});
};

}  // namespace cohort

#include "cohort/strategy_inl.h"  // IWYU pragma: keep
