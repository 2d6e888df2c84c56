// Where the other tasks of a cluster reach this one, and how messages name it.
#pragma once

#include <string>

#include "cohort/cluster/cluster_spec.h"
#include "rpc/address.h"

namespace cohort {

// The host of the task's address; where the cluster gives it none, the address of the interface that leads to the
// coordination leader. Unavailable: the leader's host cannot be resolved or there is no way to it.
std::string own_host(const ClusterSpec& cluster, const TaskId& task);

// The address of this machine's interface that leads to the peer; nothing is sent. Unavailable: there is no way to it.
std::string interface_towards(const Address& peer);

// "pid 12 on host-a"
std::string this_process();

}  // namespace cohort
