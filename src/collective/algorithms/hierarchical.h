// Makes one group of the replicas of several processes: those of a process meet in its memory, and one of them speaks
// for all to the other processes, so that a host sends one message and not one a replica.
#pragma once

#include <memory>

#include "cohort/communicator.h"
#include "collective/process/process_communicator.h"

namespace cohort {

// Makes the group's end of one replica. `local` is its end of its process's group; the collectives of `world`, which
// connects the processes, are called by local rank 0 alone. Every process has as many replicas; ranks are the process's
// rank times these, plus the local rank. Both must outlive the result. Sums are added in the order of the local ranks,
// then of the processes.
std::unique_ptr<Communicator> make_hierarchical(Communicator& local, ProcessCommunicator& world);

}  // namespace cohort
