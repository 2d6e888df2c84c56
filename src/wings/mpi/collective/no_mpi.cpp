#include "wings/mpi/cluster/mpi_runtime.h"
#include "wings/mpi/collective/mpi.h"

namespace cohort {

std::unique_ptr<Transport> make_mpi(std::chrono::milliseconds /*timeout*/) {
  start_mpi();  // says what is missing
  return nullptr;
}

}  // namespace cohort
