// The transport between processes that mpirun started, by the MPI library. Builds without MPI have no_mpi.cpp instead.
#pragma once

#include <chrono>
#include <memory>

#include "collective/transport.h"

namespace cohort {

// Connects all of MPI_COMM_WORLD; collective. Waits burn a core for some microseconds, then give way: MPI has no other.
std::unique_ptr<Transport> make_mpi(std::chrono::milliseconds timeout);

}  // namespace cohort
