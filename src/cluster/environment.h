// Reads the environment variables that resolvers need, with errors that name them.
#pragma once

#include <string>

#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

// Returns the value. Throws FailedPrecondition "[cluster] <speaker>: <name> is not set; <hint>".
std::string require_variable(const Environment& variables, const std::string& name, const std::string& speaker,
                             const std::string& hint);
// Returns the value as a number. Throws as above, and InvalidArgument unless it is a number of at least `least`.
int require_number(const Environment& variables, const std::string& name, const std::string& speaker,
                   const std::string& hint, int least = 0);
// Returns the value, or nothing if the variable is not set or is empty.
std::optional<std::string> variable(const Environment& variables, const std::string& name);

}  // namespace cohort
