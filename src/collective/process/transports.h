// The back ends between processes by the names that users give, in one table.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "collective/transport.h"

namespace cohort {

// A back end. Those of wings are extensions.
struct TransportRow {
  std::string_view name;
  std::unique_ptr<Transport> (*make)(const Meeting& meeting) = nullptr;  // null: the back end of a wing
  std::string_view wing = {};                                            // the name of the wing if `make` is null
  // Whether it reaches the other ranks by itself. Such a rank listens at no address of the cluster, and the gradients
  // of CPUs leave after backward.
  bool connects_itself = false;
  // The name of the resolver under which "auto" takes this back end; empty: none.
  std::string_view automatic_under = {};
};

// Returns the names of the table, with those of wings that this build lacks.
std::vector<std::string_view> transport_names();

// Returns the row of a back end, or null if there is no such name. Unimplemented: this build lacks its wing.
const TransportRow* find_transport(std::string_view name);

// Returns the back end that "auto" takes for a cluster of this resolver.
std::string_view automatic_transport(std::string_view resolver);

// Connects the ranks of a meeting. InvalidArgument: there is no such name, or the meeting has other ranks than the
// launcher of the processes. Unimplemented: this build does not have it.
std::unique_ptr<Transport> make_transport(std::string_view name, const Meeting& meeting);

}  // namespace cohort
