// The back ends between processes by the names that users give, in one table.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "collective/transport.h"

namespace cohort {

// Returns the names of the table.
std::vector<std::string_view> transport_names();

// Connects the ranks of a meeting. InvalidArgument: there is no such name, or the meeting has other ranks than the
// launcher of the processes. Unimplemented: this build does not have it.
std::unique_ptr<Transport> make_transport(std::string_view name, const Meeting& meeting);

}  // namespace cohort
