// Checks views that other tasks send.
#pragma once

#include <string>

#include "messages.pb.h"

namespace cohort {

// Throws InvalidArgument, in the name of `who`, unless the view has a home for each of `num_servers` servers, and names
// no others. A view of number 0 may have none.
void require_view_of(int num_servers, const parameter_server::View& view, const std::string& who);

}  // namespace cohort
