#include "cluster/environment.h"

#include <cstdlib>

#include "base/fail.h"
#include "rpc/address.h"

namespace cohort {

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

Environment environment_of(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<std::string> variable(const Environment& variables, const std::string& name) {
  std::optional<std::string> value = variables(name);
  return value && value->empty() ? std::nullopt : value;
}

std::string require_variable(const Environment& variables, const std::string& name, const std::string& speaker,
                             const std::string& hint) {
  if (std::optional<std::string> value = variable(variables, name)) return *value;
  fail<FailedPrecondition>("[cluster] ", speaker, ": ", name, " is not set; ", hint);
}

int require_number(const Environment& variables, const std::string& name, const std::string& speaker,
                   const std::string& hint, int least) {
  const std::string text = require_variable(variables, name, speaker, hint);
  const std::optional<int> number = parse_int(text);
  if (number && *number >= least) return *number;
  fail<InvalidArgument>("[cluster] ", speaker, ": ", name, " is \"", text, "\", wanted a number of at least ", least);
}

}  // namespace cohort
