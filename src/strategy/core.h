// StrategyCore: the state that every strategy is made of. A strategy is a StrategyPlan, which has a topology, a
// placement and what the launch needs to know; the core carries it out. Those who use it find no null pointers and need
// not ask what the topology is: a single process is a group of workers, a single replica has a launch, and variables
// have a home.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cohort/device.h"
#include "cohort/replica.h"
#include "cohort/strategy.h"
#include "cohort/topology.h"
#include "collective/algorithms/cross_device_sum.h"
#include "collective/local/rendezvous.h"
#include "strategy/launch.h"
#include "strategy/live_optimizers.h"
#include "strategy/memory_holders.h"
#include "strategy/placement.h"
#include "strategy/plan_extras.h"
#include "strategy/replica_cores.h"
#include "strategy/replica_runner.h"

namespace cohort {

class DeviceBackend;
class ParameterLayout;
class WorkerGroup;

// Leaves each copy of a module, which has whole parameters, its replica's parts of them, and returns which they are.
using DivideModule = std::function<std::shared_ptr<const ParameterLayout>(
    const std::shared_ptr<StrategyCore>& core, const std::vector<std::shared_ptr<torch::nn::Module>>& copies)>;

// Returns the group of this process alone.
std::shared_ptr<WorkerGroup> only_this_process();

// Everything that distinguishes one strategy from another.
struct StrategyPlan {
  std::string name;
  Topology topology;                     // the replicas of all processes
  std::vector<LogicalDevice> devices;    // those of the local replicas, at least one
  std::shared_ptr<Placement> placement;  // the place where variables live
  // The back ends of the devices; empty: those of the table in device/backends.cpp.
  std::vector<const DeviceBackend*> backends = {};
  CrossDeviceSum sum = {};  // how replicas are summed; without a function in it: as exchange.cross_device_ops says
  std::shared_ptr<WorkerGroup> workers = only_this_process();
  // Options of the launch of the replicas and of their exchange of gradients.
  ExchangeOptions exchange;
  ShardingOptions sharding = {};       // the states that the replicas share
  LocalSgdOptions local_sgd = {};      // the exchange of parameters in place of gradients
  DivideModule divide = {};            // how replicas have parts of parameters; empty: each has all of them
  MakeRunner runner = whole_shares();  // how a replica carries out its part of a run
  int devices_per_replica = 1;         // those of which the replica's is the first
  bool in_microbatches = false;        // functions get a part of a replica's share at a time
  int sharing_cores = 1;               // the number of processes that use the cores of this machine alike
  // The most memory that the inputs of the steps of one launch may take on a device (StrategyCore::gather_steps).
  int64_t loop_input_bytes = int64_t{256} << 20;
  // Options of messages have a meaning with several workers, so they are no error where there turns out to be only one.
  bool expects_workers = false;
  ReplicaCores cores = {};  // the cores of each replica, or the parts of inputs that replicas have
  // Whether a program of the replicas is one of several processes (pod.h): what is recorded outside of run(), where the
  // processes need not do the same, begins on each device by itself then.
  bool records_with_others = false;
  PlanExtras extras = {};
};

class StrategyCore : public std::enable_shared_from_this<StrategyCore> {
 public:
  explicit StrategyCore(StrategyPlan plan);
  StrategyCore(const StrategyCore&) = delete;
  StrategyCore& operator=(const StrategyCore&) = delete;
  ~StrategyCore();

  const StrategyPlan& plan() const { return plan_; }
  const Topology& topology() const { return plan_.topology; }
  const Placement& placement() const { return *plan_.placement; }
  Launch& launch() const { return *launch_; }

  int num_local_replicas() const { return static_cast<int>(plan_.devices.size()); }
  int num_replicas_in_sync() const { return topology().num_replicas_in_sync(); }
  // Returns whether a step's batch is split; a single replica takes it as it comes.
  bool splits_batches() const { return num_replicas_in_sync() > 1; }
  Replica& replica(int local_id) const { return *replicas_[static_cast<std::size_t>(local_id)]; }
  // Returns whether a local replica is in a function given to run(). From any thread.
  bool in_run(int local_id) const { return in_run_[static_cast<std::size_t>(local_id)]; }
  // Returns the number of a local replica among those of all processes.
  int replica_id(int local_id) const { return first_replica_ + local_id; }
  // Returns the first local replica of each share of the batch that this process takes, in the order of the shares.
  // Where all axes carry the batch these are all local replicas.
  const std::vector<int>& share_leaders() const { return share_leaders_; }
  // Returns the number of the input pipeline of each worker, from 0: workers whose replicas take the same shares of the
  // batch have the same. Where all axes carry the batch each worker has one of its own.
  const std::vector<int>& pipelines() const { return pipelines_; }
  // Returns whether this worker is the first one of its pipeline: what others have of the same examples is the same.
  bool leads_pipeline() const { return leads_pipeline_; }
  // Returns whether this worker's pipeline has other workers.
  bool shares_pipeline() const {
    const int own = pipelines_[static_cast<std::size_t>(worker_rank())];
    return std::count(pipelines_.begin(), pipelines_.end(), own) > 1;
  }
  // Returns whether some replicas differ in other axes than the batch's, and so take the same share.
  bool divides_models() const { return divides_models_; }
  // Returns which of these shares a local replica takes.
  std::size_t local_share(int local_id) const { return local_shares_[static_cast<std::size_t>(local_id)]; }

  // Returns a local replica's end of the group of all replicas in sync with it.
  Communicator& communicator(int local_id) const { return *in_sync_[static_cast<std::size_t>(local_id)]; }
  // Returns a local replica's end of its line along an axis. NotFound: there is no such axis.
  Communicator& group(std::string_view axis, int local_id) const;
  // Returns the place where the local replicas meet.
  Rendezvous& rendezvous() { return *rendezvous_; }
  const CrossDeviceSum& cross_device_sum() const { return sum_; }
  // Returns sums over the replicas of all workers that go on beside what their devices compute, for one user, if all
  // are in sync; null: there are none. A collective of the workers.
  std::shared_ptr<SumsBeside> sums_beside() const;

  // Returns the processes that the strategy spans.
  WorkerGroup& workers() const { return *plan_.workers; }
  int num_workers() const;
  int worker_rank() const;
  // Gives the tensors of worker 0 to all workers; cross-replica context.
  void broadcast_from_chief(std::span<torch::Tensor> tensors) const;
  // Returns the text that worker 0 has, on every worker.
  std::string text_from_chief(const std::string& text) const;
  // Returns the number of cores that an operation of a replica may use.
  int threads_per_replica() const { return threads_per_replica_; }
  // Returns what each worker has, on all of them, in rank order.
  std::vector<std::string> gather_texts(const std::string& text) const;
  // Returns whether any worker says so; a collective of all.
  bool any_worker(const std::string& what, bool mine) const;
  // Runs fn on worker 0 alone and returns when it has. An exception of it comes out there, and as Unavailable
  // elsewhere.
  void on_chief(const std::string& what, const std::function<void()>& fn) const;

  // Returns how the gradients of parameters become parameters; "has_kernels" says whether the update has a kernel for
  // every dtype of them.
  PathChoice gradient_path(bool has_kernels) const;
  torch::Device parameter_device(int local_id) const { return placement().device(local_id).torch_device; }
  // Returns the back end of a local replica's device.
  const DeviceBackend& backend(int local_id) const { return *plan_.backends[static_cast<std::size_t>(local_id)]; }

  // Returns whether a local replica that computes elsewhere has its states in the host's memory.
  bool offloads_states(int local_id) const;
  // Returns whether all local replicas have theirs there, for whichever reason.
  bool has_states_on_host() const { return plan_.sharding.offload_states || computes_on_host(); }
  // Returns whether the replicas share the parameters. A single one shares them with the host, where it offloads them.
  bool shares_parameters() const {
    return plan_.sharding.stage > 2 && (facts_.shares_gradients || offloads_states(/*local_id=*/0));
  }

  // Returns whether the replicas' devices record their work and begin it together.
  bool joins() const;
  // Joins the local replicas and begins what all have recorded; "what" is where they are in their work.
  void begin_together(int local_id, std::string_view what);
  // Begins what all local replicas have recorded outside of run().
  void begin_outside() const;
  // Announces so many steps that may begin together, where devices record their work: DeviceBackend::gather_steps().
  void gather_steps(int64_t steps) const;
  // Returns how many steps are held back so.
  int64_t gathered_steps() const;

  // Returns the optimizers that were made under this strategy and are alive.
  LiveOptimizers& optimizers() { return optimizers_; }

  // Returns who says what the memory of the replicas' devices holds.
  MemoryHolders& memory_holders() { return memory_holders_; }

  // The states of the variables that the strategy has made; see Strategy::variables().
  std::vector<std::weak_ptr<void>>& variables() { return variables_; }

  // Runs the job on all local replicas; other workers hear of its failure.
  void run(const std::shared_ptr<detail::Job>& job);
  // Runs one replica's part of the job on this thread.
  void call(detail::Job& job, int local_id);
  void set_seed(uint64_t seed);

 private:
  // The ends of the local replicas.
  using Ends = std::vector<std::shared_ptr<Communicator>>;

  bool computes_on_host() const;
  void make_shares();
  void make_replicas();
  void make_groups();
  // Returns the local replicas' ends of the groups of those replicas for which "color" returns the same. A group of all
  // replicas is there already; others are made, which is a collective of all processes.
  Ends group_by(const std::function<int(int)>& color) const;

  StrategyPlan plan_;
  int first_replica_ = 0;  // the first replica of this process, among those of all processes
  std::vector<int> share_leaders_;
  std::vector<std::size_t> local_shares_;  // of each local replica
  std::vector<int> pipelines_;             // of each worker
  bool leads_pipeline_ = true;
  bool divides_models_ = false;
  int threads_per_replica_ = 1;
  PathFacts facts_;
  std::unique_ptr<Rendezvous> rendezvous_;
  CrossDeviceSum sum_;
  Ends whole_;  // the group of all replicas of all workers
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::unique_ptr<ReplicaRunner>> runners_;  // one a replica
  std::vector<std::vector<int>> near_;                   // the host's processors near each replica's device
  std::deque<std::atomic<bool>> in_run_;                 // [replica]
  std::unique_ptr<Launch> launch_;
  std::map<std::string, Ends> lines_;  // by axis
  Ends in_sync_;
  std::vector<std::weak_ptr<void>> variables_;
  MemoryHolders memory_holders_;
  LiveOptimizers optimizers_;
  std::atomic<bool> running_ = false;  // a run() has not returned
  int forks_;                          // when the strategy was made
};

}  // namespace cohort
