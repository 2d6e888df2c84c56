#include "collective/process/transports.h"

#include "base/fail.h"
#include "collective/gloo/gloo.h"
#include "collective/mpi/mpi.h"
#include "collective/tcp/tcp.h"

namespace cohort {

namespace {

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

struct TransportRow {
  std::string_view name;
  std::unique_ptr<Transport> (*make)(const Meeting& meeting);
};

// Ranks that have to prove themselves speak TLS, which Gloo does not.
std::unique_ptr<Transport> connect_ring(const Meeting& meeting) {
  return meeting.identity ? make_tcp(meeting) : make_gloo(meeting);
}

constexpr TransportRow kTransports[] = {
    {"ring", connect_ring},
    {"mpi", connect_mpi},
};

}  // namespace

std::vector<std::string_view> transport_names() {
  std::vector<std::string_view> names;
  for (const TransportRow& row : kTransports) names.push_back(row.name);
  return names;
}

std::unique_ptr<Transport> make_transport(std::string_view name, const Meeting& meeting) {
  std::string known;
  for (const TransportRow& row : kTransports) {
    if (row.name == name) return row.make(meeting);
    known += c10::str(known.empty() ? "" : ", ", row.name);
  }
  fail<InvalidArgument>("[collective] there is no transport \"", name, "\" between processes, only ", known);
}

}  // namespace cohort
