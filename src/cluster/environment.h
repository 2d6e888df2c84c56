// Variables that resolvers need: reading them with errors that name them.
#pragma once

#include <string>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

// FailedPrecondition "[cluster] <speaker>: <name> is not set; <hint>".
std::string require_variable(const Environment& variables, const std::string& name, const std::string& speaker,
                             const std::string& hint);
// As above, and InvalidArgument unless it is a number of at least `least`.
int require_number(const Environment& variables, const std::string& name, const std::string& speaker,
                   const std::string& hint, int least = 0);
// Nothing when it is not set or empty.
std::optional<std::string> variable(const Environment& variables, const std::string& name);

}  // namespace cohort
