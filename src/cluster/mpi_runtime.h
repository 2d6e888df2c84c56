// The MPI library of a process that mpirun started. Builds without MPI have no_mpi_runtime.cpp instead.
#pragma once

#include <string>

namespace cohort {

bool has_mpi();

// Starts MPI for this process, once, such that any thread may call it; it ends with the process. Unimplemented in
// builds without MPI; Unavailable where the MPI library has no such threads.
void start_mpi();

// The text that rank 0 gives, on every rank of MPI_COMM_WORLD. Collective.
std::string mpi_broadcast(const std::string& mine);

// Where start_mpi() was called: do not wait for the other ranks when the process ends, because one of them is gone.
void abandon_mpi();

}  // namespace cohort
