// The ranks of a cluster as threads: each with a membership over loopback and a communicator over a transport.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/error.h"
#include "collective/process/process_communicator.h"
#include "collective/process/transports.h"
#include "tests/support/rank_errors.h"
#include "tests/support/workers.h"

namespace cohort::testing {

// Returns the transports of the table that this build has and whose ranks may be threads. Those of MPI are processes
// that mpirun starts (tests/wings/mpi/collective/mpi_test.cpp).
inline std::vector<std::string> transports_of_threads() {
  std::vector<std::string> names;
  for (const std::string_view name : transport_names()) {
    if (name == "mpi") continue;
    try {
      (void)make_transport(name, {.host = "127.0.0.1", .put = [](const std::string&, const std::string&) {}});
      names.emplace_back(name);
    } catch (const Unimplemented&) {  // this build is without its wing or library
    }
  }
  return names;
}

inline bool has_transport(std::string_view name) {
  const std::vector<std::string> names = transports_of_threads();
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct ProcessRanksOptions {
  std::string_view transport = "ring";
  std::chrono::milliseconds timeout = std::chrono::seconds(20);  // of a collective
  std::chrono::milliseconds straggler_after = std::chrono::seconds(5);
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(10);  // a busy machine may stop for seconds
  std::optional<TlsPem> identity = std::nullopt;                           // what the ranks prove to each other
  std::vector<TlsPem> identities = {};                                     // of each rank, in place of `identity`
  bool one_machine = true;  // with an identity: they need not encrypt what they send
  bool shared_memory = true;
  std::vector<std::string> machines = {};  // of each rank; this one
  std::string algorithm = "auto";
  std::function<std::shared_ptr<Communicator>(const std::shared_ptr<Membership>&)> devices = {};  // none
  torch::DeviceType device_type = torch::kCUDA;
};

inline std::unique_ptr<ProcessCommunicator> connect(const std::shared_ptr<Membership>& membership,
                                                    const ProcessRanksOptions& options) {
  const auto rank = static_cast<std::size_t>(membership->task().index);
  const Meeting meeting{
      .rank = membership->task().index,
      .size = static_cast<int>(membership->tasks().size()),
      .host = "127.0.0.1",
      .prefix = "transport/",
      .identity = options.identities.empty() ? options.identity : options.identities[rank],
      .machine = options.one_machine ? "here" : "",
      .timeout = options.timeout,
      .put = [membership](const std::string& key, const std::string& value) { membership->put(key, value); },
      .get = [membership](const std::string& key,
                          std::chrono::milliseconds timeout) { return membership->get(key, timeout); }};
  return std::make_unique<ProcessCommunicator>(
      make_transport(options.transport, meeting),
      ProcessGroupOptions{.agreement = {.membership = membership,
                                        .timeout = options.timeout,
                                        .straggler_after = options.straggler_after,
                                        .algorithm = options.algorithm},
                          .shared_memory = options.shared_memory,
                          .machine = options.machines.empty() ? "" : options.machines[rank],
                          .devices = options.devices ? options.devices(membership) : nullptr,
                          .device_type = options.device_type});
}

// Runs fn(communicator, membership) as each of `size` workers; rethrows the first failure in rank order.
inline void with_process_ranks(int size, const ProcessRanksOptions& options,
                               const std::function<void(ProcessCommunicator&, Membership&)>& fn) {
  const ClusterSpec cluster = loopback_workers(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const auto membership =
              std::make_shared<Membership>(cluster, TaskId{"worker", rank},
                                           MembershipOptions{.start_timeout = std::chrono::seconds(20),
                                                             .heartbeat_timeout = options.heartbeat_timeout});
          fn(*connect(membership, options), *membership);
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  rethrow_first(errors);
}

inline void with_process_ranks(int size, const std::function<void(ProcessCommunicator&, Membership&)>& fn) {
  with_process_ranks(size, {}, fn);
}

}  // namespace cohort::testing
