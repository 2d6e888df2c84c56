// The address at which the other tasks of a cluster reach this one, and the name that messages give it.
#pragma once

#include <string>

#include "cohort/cluster/cluster_spec.h"
#include "rpc/address.h"

namespace cohort {

// Returns the host of the task's address. If the cluster gives it none, returns the address of the interface that leads
// to the coordination leader. Unavailable: the leader's host cannot be resolved or there is no way to it.
std::string own_host(const ClusterSpec& cluster, const TaskId& task);

// Returns the address of this machine's interface that leads to the peer, and sends nothing. Unavailable: there is no
// way to the peer.
std::string interface_towards(const Address& peer);

// Returns the name of this process in messages: "pid 12 on host-a".
std::string this_process();

}  // namespace cohort
