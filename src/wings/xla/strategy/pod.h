// Pod: the processes of a TPUStrategy that spans several hosts. Each drives devices of its own, records for them, and
// launches programs together with the others; they find and watch each other by a Membership.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

#include "cohort/cluster/cluster_resolver.h"
#include "strategy/worker_group.h"
#include "wings/xla/device/client.h"
#include "wings/xla/record/hosts.h"

namespace cohort {

// This process among those of a pod.
struct Pod {
  ClusterSpec cluster;
  TaskId task;
  std::shared_ptr<Membership> membership;
  std::shared_ptr<XlaProcesses> processes;  // of this process, the same for every pod that it enters
};

// Enters the pod that the resolver finds and returns when all processes are there; nothing for a process alone. Errors
// as training_cluster(), Membership and the resolver have them.
std::optional<Pod> enter_pod(const std::string& speaker, const ClusterResolver& resolver,
                             const MembershipOptions& options);
// Keeps a pod for the next call of enter_pod() with the same cluster and task, which does not enter anew.
void keep_pod(const Pod& pod);

// Tells the other processes of an error, because they wait for this one, some of them within the plugin. Never throws.
void tell_pod(const Pod& pod, const std::exception& error) noexcept;
// Calls fn and returns its result. The other processes hear of what it throws.
template <typename Fn>
auto in_pod(const Pod& pod, const Fn& fn) {
  try {
    return fn();
  } catch (const std::exception& error) {
    tell_pod(pod, error);
    throw;
  }
}

// Fails unless the devices of the client are those of the pod's processes, as many for each as libtpu's variables say.
// FailedPrecondition: the plugin has devices of other processes than the pod (nothing: of others than this one).
void check_pod(const std::string& speaker, const XlaClient& client, const std::optional<Pod>& pod);

// Returns what the recorder asks the other processes through the group.
std::shared_ptr<record::Hosts> make_pod_hosts(std::shared_ptr<JoinedWorkers> workers);

// From now on, the process ends with status 1 if `limit` after the group has failed a launch on its devices has not
// ended: one that waits for a process that is lost never does, and keeps the program in the plugin. 0: never. It says
// so on the standard error.
void end_stuck_process(Membership& membership, std::chrono::milliseconds limit);

}  // namespace cohort
