// WorkerGroup: the processes that one strategy spans, and this one among them. It may be the only one: operations
// between the workers then have nothing to do, and nobody has to ask.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort/cluster/multi_worker_strategy.h"
#include "cohort/device.h"
#include "collective/process/process_communicator.h"

namespace cohort {

struct WorkerGroupOptions {
  ClusterSpec cluster;  // chief and workers only
  TaskId task;
  std::vector<LogicalDevice> devices;  // of this worker's replicas, at least one
  bool under_mpi = false;              // whether mpirun started the workers
  CommunicationOptions communication;
  MembershipOptions membership;
};

// InvalidArgument: there is no such implementation.
void require_known(const CommunicationOptions& options);

class WorkerGroup {
 public:
  // A group of this process alone.
  WorkerGroup();
  // Returns when all workers are there and connected.
  explicit WorkerGroup(const WorkerGroupOptions& options);

  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }
  // Returns the devices of each worker's replicas, by rank.
  const std::vector<std::vector<DeviceSpec>>& devices() const { return devices_; }
  // Null for a process alone.
  const std::shared_ptr<Membership>& membership() const { return membership_; }

  // Used by the thread of local replica 0, which is also the one of cross-replica context.
  ProcessCommunicator& world() const { return *world_; }

  // Whether gradients are to leave while backward runs, and the back end can.
  bool overlaps() const;
  // For gradients: the same workers for one more thread when they overlap with backward, else world().
  ProcessCommunicator& gradients() const { return gradients_ ? *gradients_ : *world_; }

  // How many of the workers run on the same cores of the same machine as this one, itself included.
  int sharing_cores() const { return sharing_cores_; }

  // Ends the group because this worker cannot go on; the others hear why. Never throws.
  void fail(const std::string& reason) const noexcept;

 private:
  void check_members();
  std::unique_ptr<ProcessCommunicator> make_group(const std::string& name, const std::string& kind) const;

  WorkerGroupOptions options_;
  std::shared_ptr<Membership> membership_;
  std::vector<std::vector<DeviceSpec>> devices_;
  std::unique_ptr<ProcessCommunicator> world_;
  std::unique_ptr<ProcessCommunicator> gradients_;
  int sharing_cores_ = 1;
};

}  // namespace cohort
