// Sums over the ranks of several processes that go on beside what their devices compute: over the ranks of a process
// first, and then between the processes, where the first rank of each speaks for it.
#pragma once

#include <torch/types.h>

#include <chrono>
#include <memory>
#include <vector>

#include "collective/devices/sums_beside.h"
#include "collective/process/process_communicator.h"

namespace cohort {

// Makes the sums of ranks on these devices, which are of one back end. `local` are the sums within this process; null:
// there is one rank. `group` are the processes, for these sums alone; making them is a collective of it. `timeout`: the
// longest time of a sum between the processes.
//
// Where the group's devices add up in the order of their streams (StreamSums: NCCL) the host waits for nothing.
// Elsewhere a sum is fetched to page-locked memory on a stream of its own, goes to the other processes in the thread of
// the group's asynchronous collectives, and back to the devices; who waits for its point waits on the host until it is
// on its way back. Unimplemented: the back end has no side streams.
std::shared_ptr<SumsBeside> make_sums_over_processes(const std::vector<torch::Device>& of_ranks,
                                                     std::shared_ptr<SumsBeside> local,
                                                     std::unique_ptr<ProcessCommunicator> group,
                                                     std::chrono::milliseconds timeout);

}  // namespace cohort
