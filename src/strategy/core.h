// StrategyCore: what every strategy is made of. A strategy is a StrategyPlan; the core carries it out.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cohort/device.h"
#include "cohort/replica.h"
#include "cohort/strategy.h"
#include "cohort/topology.h"
#include "collective/local/rendezvous.h"
#include "collective/ops/cross_device_ops.h"
#include "strategy/replica_threads.h"

namespace cohort {

class RemoteCluster;
class RemoteVariables;
class WorkerGroup;

// Where variables live.
enum class VariablePlacement {
  kMirrored,  // a copy on every replica
  kCentral,   // one copy, on the parameter device
};

// Everything that distinguishes one strategy from another: placement, launch and exchange.
struct StrategyPlan {
  std::string name;
  Topology topology;                   // of the replicas of all processes
  std::vector<LogicalDevice> devices;  // of the local replicas, at least one
  VariablePlacement placement = VariablePlacement::kMirrored;
  std::vector<LogicalDevice> parameter_devices;  // empty: devices
  ExchangeOptions exchange;
  // Whether input is rebatched to shares; without, the replica gets the dataset's own batches.
  bool rebatch_input = true;
  // The processes that the strategy spans; null: a group of this one alone is made.
  std::shared_ptr<WorkerGroup> workers = nullptr;
  // Where variables are kept by other processes; null: here.
  std::shared_ptr<RemoteCluster> remote = nullptr;
  // How many processes use the cores of this machine alike.
  int sharing_cores = 1;
};

class StrategyCore : public std::enable_shared_from_this<StrategyCore> {
 public:
  explicit StrategyCore(StrategyPlan plan);
  StrategyCore(const StrategyCore&) = delete;
  StrategyCore& operator=(const StrategyCore&) = delete;
  ~StrategyCore();

  const StrategyPlan& plan() const { return plan_; }
  int num_local_replicas() const { return static_cast<int>(plan_.devices.size()); }
  const Topology& topology() const { return plan_.topology; }
  int num_replicas_in_sync() const { return topology().num_replicas_in_sync(); }
  // Returns the number of a local replica among those of all processes.
  int replica_id(int local_id) const { return first_replica_ + local_id; }
  Replica& replica(int local_id) const { return *replicas_[static_cast<std::size_t>(local_id)]; }
  // Between all replicas in sync.
  Communicator& communicator(int local_id) const {
    const auto& group = communicators_.empty() ? local_communicators_ : communicators_;
    return *group[static_cast<std::size_t>(local_id)];
  }
  // Returns a local replica's end of its line along an axis. NotFound: there is no such axis.
  Communicator& group(std::string_view axis, int local_id) const;
  Rendezvous& rendezvous() { return *rendezvous_; }

  // The processes that the strategy spans.
  WorkerGroup& workers() const { return *plan_.workers; }
  int num_workers() const;
  int worker_rank() const;
  // Of parameter servers; null where there are none.
  RemoteVariables* remote() const;
  // What worker 0 has, in these tensors everywhere; cross-replica context.
  void broadcast_from_chief(std::span<torch::Tensor> tensors) const;
  // The text that worker 0 has, on every worker.
  std::string text_from_chief(const std::string& text) const;
  // What each worker has, on all of them, in rank order.
  std::vector<std::string> gather_texts(const std::string& text) const;
  // Whether any worker says so; a collective of all.
  bool any_worker(const std::string& what, bool mine) const;
  // Runs fn on worker 0 alone and returns when it has. What it throws comes out there, and as Unavailable elsewhere.
  void on_chief(const std::string& what, const std::function<void()>& fn) const;

  const CrossDeviceOps& cross_device_ops() const { return *ops_; }

  // Whether all replicas compute on CPUs and can reach each other's memory.
  bool shares_memory() const { return shares_memory_; }
  // Whether all replicas use one copy of every variable, where it lies.
  bool one_copy() const { return central() && shares_memory_; }
  bool central() const { return plan_.placement == VariablePlacement::kCentral; }
  torch::Device parameter_device(int local_id) const;

  // Cores for the operations of one replica.
  int threads_per_replica() const { return threads_per_replica_; }

  void run(const std::shared_ptr<detail::Job>& job);
  void set_seed(uint64_t seed);

  // Joins the replicas of this run: see Replica::meet.
  void meet(int local_id, std::string_view what, void* mine, const std::function<void(std::span<void* const>)>& lead);

 private:
  // How one replica's part of a run ended.
  struct Outcome {
    std::exception_ptr error;
    bool secondary = false;  // Cancelled because of another replica
  };

  void run_local(const std::shared_ptr<detail::Job>& job);
  void run_alone(detail::Job& job);
  void run_replica(detail::Job& job, int local_id, std::vector<Outcome>& outcomes);
  void call_job(detail::Job& job, Replica& replica);
  [[noreturn]] void give_up_on_missing(std::vector<Outcome>& outcomes);
  void rethrow_first(std::vector<Outcome>& outcomes);

  StrategyPlan plan_;
  int first_replica_ = 0;  // of this process, among those of all processes
  bool shares_memory_ = false;
  bool broken_ = false;  // a replica never came back
  int threads_per_replica_ = 1;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<CrossDeviceOps> ops_;
  std::vector<std::unique_ptr<Communicator>> local_communicators_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // over all workers
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<ReplicaThreads> threads_;
};

}  // namespace cohort
