// The MPI runtime of builds without MPI (COHORT_WITH_MPI): every call is an error that says so.
#include "base/fail.h"
#include "wings/mpi/cluster/mpi_runtime.h"

namespace cohort {

bool has_mpi() {
  return false;
}

void start_mpi() {
  fail_unbuilt("[cluster] mpi", "install libopenmpi-dev and configure with COHORT_WITH_MPI=ON");
}

void require_mpi_size(int /*size*/) {
  start_mpi();
}

std::string mpi_broadcast(const std::string& /*mine*/) {
  start_mpi();
  return "";
}

void abandon_mpi(std::shared_ptr<const void> /*used*/) {}

}  // namespace cohort
