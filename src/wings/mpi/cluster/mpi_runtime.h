// The MPI library of a process that mpirun started. Builds without MPI have no_mpi_runtime.cpp instead.
#pragma once

#include <memory>
#include <string>

namespace cohort {

bool has_mpi();

// Starts MPI for this process, once, such that any thread may call it; it ends with the process. Unimplemented in
// builds without MPI; Unavailable where the MPI library has no such threads.
void start_mpi();

// Throws FailedPrecondition unless MPI_COMM_WORLD has so many ranks, as the launcher says: the launcher of another MPI
// library starts processes that each see a world of one.
void require_mpi_size(int size);

// Returns the text of rank 0 on every rank of MPI_COMM_WORLD. Collective.
std::string mpi_broadcast(const std::string& mine);

// Makes the process end without waiting for the other ranks, because one of them is gone. MPI may still read or write
// what was `used`, which therefore stays. Has an effect after start_mpi().
void abandon_mpi(std::shared_ptr<const void> used);

}  // namespace cohort
