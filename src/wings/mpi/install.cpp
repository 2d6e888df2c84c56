// Gives the core what this wing has.
#include "base/extension.h"
#include "base/fail.h"
#include "cluster/environment.h"
#include "cluster/resolver_row.h"
#include "cohort/cluster/mpi_resolver.h"
#include "collective/process/transports.h"
#include "wings/mpi/cluster/mpi_runtime.h"
#include "wings/mpi/collective/mpi.h"

namespace cohort {

namespace {

bool is_of_mpi(const Environment& variables) {
  return variable(variables, "OMPI_COMM_WORLD_SIZE") || variable(variables, "PMI_SIZE");
}

// MPI has ranks of its own, which mpirun gave.
std::unique_ptr<Transport> connect_mpi(const Meeting& meeting) {
  std::unique_ptr<Transport> transport = make_mpi(meeting.timeout);
  if (transport->rank() != meeting.rank || transport->size() != meeting.size) {
    fail<InvalidArgument>("[collective] mpi: the cluster has this process as worker ", meeting.rank, " of ",
                          meeting.size, ", mpirun as rank ", transport->rank(), " of ", transport->size(),
                          "; communication over MPI needs them to be the same");
  }
  return transport;
}

}  // namespace

void install_mpi() {
  extend(ResolverRow{.name = "mpi", .place = 30, .applies = is_of_mpi, .make = [](const Environment& variables) {
                       return ClusterResolverPtr(std::make_shared<MpiResolver>(MpiOptions{.variables = variables}));
                     }});
  extend(TransportRow{
      .name = "mpi", .make = connect_mpi, .connects_itself = true, .automatic_under = has_mpi() ? "mpi" : ""});
}

}  // namespace cohort
