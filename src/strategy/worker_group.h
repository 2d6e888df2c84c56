// WorkerGroup: the processes that one strategy spans, and this one among them. It may be the only one: operations
// between the workers then have nothing to do, and nobody has to ask. JoinedWorkers are several.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/device.h"
#include "collective/devices/sums_beside.h"
#include "collective/process/process_communicator.h"
#include "device/host_random.h"
#include "strategy/placement.h"

namespace cohort {

struct WorkerGroupOptions {
  ClusterSpec cluster;  // chief and workers only
  TaskId task;
  std::vector<LogicalDevice> devices;  // the devices of this worker's replicas, at least one
  std::string resolver;                // the name of the resolver of the cluster
  CommunicationOptions communication;
  MembershipOptions membership;
  std::string strategy = "multi_worker_mirrored";  // whose workers they are, for messages
  // The membership of the cluster, where the task has entered it already; it serves one group. Null: the group enters.
  std::shared_ptr<Membership> entered = nullptr;
  std::map<std::string, std::string> alike = {};  // facts that have to be the same on all workers, by their names
  std::string told = "";                          // a text for the other workers
  // The path of gradients that the replicas of a process add up where they lie.
  GradientPath in_place = GradientPath::kOverWorkers;
};

// Returns the tasks of a cluster that train together with this one, if it trains with others; empty if it is to train
// alone: without a cluster, for an evaluator and for the only task. InvalidArgument: the cluster has no such task, or
// the task is a parameter server or missing.
ClusterSpec training_cluster(std::string_view strategy, const ClusterSpec& cluster, const std::optional<TaskId>& task);

// Throws InvalidArgument if there is no such implementation.
void require_known(const CommunicationOptions& options);

class WorkerGroup {
 public:
  // A group of this process alone.
  WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;
  virtual ~WorkerGroup();

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  // Returns the membership of the cluster; null for a process alone.
  virtual std::shared_ptr<Membership> membership() const { return nullptr; }

  // Returns the group of the workers. The thread of local replica 0 uses it, which is also that of cross-replica
  // context.
  ProcessCommunicator& world() const { return *world_; }

  // Returns whether gradients are to leave while backward runs, and the back end can.
  virtual bool overlaps() const { return false; }
  // Returns the group for gradients: the same workers for one more thread when they overlap with backward, else
  // world().
  virtual ProcessCommunicator& gradients() const { return *world_; }

  // Sums that go on beside what the devices of this process's replicas compute.
  struct Beside {
    std::vector<torch::Device> devices;      // [replica]
    std::shared_ptr<SumsBeside> local = {};  // over them; null: there is one replica, or `reason`
    std::optional<std::string> reason = {};  // why nothing can go on beside; nothing: it can
  };
  // Returns such sums over all replicas of all workers, for one user; null: gradients leave after backward. A
  // collective of the workers. InvalidArgument: CommunicationOptions::overlap wants them where a worker has a reason.
  virtual std::shared_ptr<SumsBeside> beside(Beside here) const { return std::move(here.local); }

  // Returns a replica's end of the group of all replicas of all workers. `local` is its end of those of this process.
  virtual std::shared_ptr<Communicator> over_all(std::shared_ptr<Communicator> local) const { return local; }
  // Returns the path of gradients that the replicas of this process add up where they lie.
  virtual GradientPath path_in_place() const { return GradientPath::kSharedMemory; }

  // Returns how many of the workers run on the same cores of the same machine as this one, itself included.
  virtual int sharing_cores() const { return 1; }

  // Returns the sum of what the workers have, where it is known without asking them.
  virtual std::optional<int64_t> known_total(int64_t mine) const { return mine; }
  // Returns whether this worker decides for all when an input ends. Otherwise they agree on it, a step ahead.
  virtual bool ends_alone() const { return true; }

  // Ends the group because this worker cannot go on; the others hear why. Never throws.
  virtual void fail(const std::string& /*reason*/) const noexcept {}

 protected:
  explicit WorkerGroup(std::unique_ptr<ProcessCommunicator> world);

  std::unique_ptr<ProcessCommunicator> world_;
};

class JoinedWorkers final : public WorkerGroup {
 public:
  // Returns when all workers are there and connected.
  explicit JoinedWorkers(const WorkerGroupOptions& options);

  // Returns the devices of each worker's replicas, by rank.
  const std::vector<std::vector<DeviceSpec>>& devices() const { return devices_; }
  // Returns what each worker has told (WorkerGroupOptions::told), by rank.
  const std::vector<std::string>& told() const { return told_; }

  std::shared_ptr<Membership> membership() const override { return membership_; }
  bool overlaps() const override;
  ProcessCommunicator& gradients() const override { return gradients_ ? *gradients_ : *world_; }
  int sharing_cores() const override { return sharing_cores_; }
  std::shared_ptr<SumsBeside> beside(Beside here) const override;
  std::shared_ptr<Communicator> over_all(std::shared_ptr<Communicator> local) const override;
  GradientPath path_in_place() const override { return options_.in_place; }
  std::optional<int64_t> known_total(int64_t /*mine*/) const override { return std::nullopt; }
  bool ends_alone() const override { return false; }
  void fail(const std::string& reason) const noexcept override;

 private:
  std::string own_info(const std::string& communication) const;
  std::vector<std::string> enter(const std::string& info);
  void check_members(const std::vector<std::string>& infos);
  std::string choose_host(const std::vector<std::vector<std::string>>& addresses) const;
  std::unique_ptr<ProcessCommunicator> connect(const std::string& kind) const;

  HostWorker here_;
  WorkerGroupOptions options_;
  std::shared_ptr<Membership> membership_;
  std::vector<std::vector<DeviceSpec>> devices_;
  std::vector<std::string> told_;
  std::vector<std::string> addresses_;  // of this worker; empty under MPI, which has its own
  std::string host_;                    // the one of them for connections between the workers
  std::unique_ptr<ProcessCommunicator> gradients_;
  int sharing_cores_ = 1;
};

}  // namespace cohort
