// The processes that mpirun has started, as the workers of a cluster.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cluster/free_port.h"
#include "cohort/cluster/cluster_spec.h"
#include "collective/process/process_communicator.h"
#include "wings/mpi/cluster/mpi_runtime.h"
#include "wings/mpi/collective/mpi.h"

namespace cohort::testing {

// They meet on loopback.
inline std::shared_ptr<Membership> membership_of_ranks(std::chrono::milliseconds heartbeat_timeout) {
  const ProcessCommunicator world(make_mpi(std::chrono::seconds(20)), {});
  std::vector<std::string> addresses(static_cast<std::size_t>(world.size()));
  addresses[0] = mpi_broadcast(world.rank() == 0 ? c10::str("127.0.0.1:", free_port("127.0.0.1")) : "");
  return std::make_shared<Membership>(
      ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}}),
      TaskId{"worker", world.rank()},
      MembershipOptions{.start_timeout = std::chrono::seconds(60), .heartbeat_timeout = heartbeat_timeout});
}

}  // namespace cohort::testing
