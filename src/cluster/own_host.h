// The address at which the other tasks of a cluster reach this one, and the name that messages give it.
#pragma once

#include <string>
#include <vector>

#include "base/wait_reporting.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/address.h"

namespace cohort {

// Waits until the host of the task's address can be resolved: a pod may start before its DNS record is there.
// DeadlineExceeded: the wait is over.
void await_own_name(const ClusterSpec& cluster, const TaskId& task, WaitOptions options);

// Returns the address of an interface at which the other tasks reach this one although the host of its own address does
// not lead there: Debian's and Ubuntu's installers write 127.0.1.1 beside the machine's name. Returns none where the
// host's addresses are not all loopback's, and where no other task is elsewhere.
std::vector<std::string> hosts_beside_loopback(const ClusterSpec& cluster, const TaskId& task);

// Throws InvalidArgument if the indices of the job's tasks are not 0, 1, 2 and so on, as ranks are.
void require_no_gap(const ClusterSpec& cluster, const std::string& job);

// Returns the numeric addresses at which the other tasks reach this one, the preferred one first. They are those of the
// task's host, or the interface that leads to the other tasks (see above), or, if the cluster gives the task no
// address, the interface that leads to the coordination leader. Unavailable: a host cannot be resolved, or there is no
// way to it.
std::vector<std::string> own_addresses(const ClusterSpec& cluster, const TaskId& task);

// Returns the address of this machine's interface that leads to the peer, and sends nothing. Unavailable: there is no
// way to the peer.
std::string interface_towards(const Address& peer);

// Returns the name of this process in messages: "pid 12 on host-a".
std::string this_process();

}  // namespace cohort
