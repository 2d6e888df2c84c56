#include "collective/process/transports.h"

#include "base/extension_table.h"
#include "base/fail.h"
#include "collective/tcp/tcp.h"

namespace cohort {

namespace {

// The back ends of the core, and the places of those of wings.
constexpr TransportRow kTransports[] = {
    {.name = "ring", .make = make_tcp},
    {.name = "gloo", .wing = "gloo"},
    {.name = "mpi", .wing = "mpi"},
};

}  // namespace

std::vector<std::string_view> transport_names() {
  std::vector<std::string_view> names;
  for (const TransportRow* row : with_extensions(kTransports)) names.push_back(row->name);
  return names;
}

const TransportRow* find_transport(std::string_view name) {
  for (const TransportRow* row : with_extensions(kTransports)) {
    if (row->name != name) continue;
    if (row->make == nullptr) fail_without(row->wing, "[collective] the transport \"", name, "\" is to be used");
    return row;
  }
  return nullptr;
}

std::string_view automatic_transport(std::string_view resolver) {
  for (const TransportRow* row : with_extensions(kTransports)) {
    if (!row->automatic_under.empty() && row->automatic_under == resolver) return row->name;
  }
  return kTransports[0].name;
}

std::unique_ptr<Transport> make_transport(std::string_view name, const Meeting& meeting) {
  if (const TransportRow* row = find_transport(name)) return row->make(meeting);
  std::string known;
  for (const std::string_view each : transport_names()) known += c10::str(known.empty() ? "" : ", ", each);
  fail<InvalidArgument>("[collective] there is no transport \"", name, "\" between processes, only ", known);
}

}  // namespace cohort
