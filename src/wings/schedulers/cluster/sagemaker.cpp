#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "rpc/address.h"

namespace cohort {

namespace {

constexpr const char* kNotSagemaker = "not a SageMaker environment";

std::vector<std::string> sorted_hosts(const Environment& variables) {
  const std::string text = require_variable(variables, "SM_HOSTS", "sagemaker", kNotSagemaker);
  const nlohmann::json tree = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool fits = tree.is_array() && !tree.empty() &&
                    std::all_of(tree.begin(), tree.end(), [](const auto& host) { return host.is_string(); });
  if (!fits) fail<InvalidArgument>("[cluster] sagemaker: SM_HOSTS is ", text, ", wanted a JSON list of hosts");
  auto hosts = tree.get<std::vector<std::string>>();
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

}  // namespace

ClusterSpec SageMakerResolver::cluster_spec() const {
  std::vector<std::string> addresses;
  for (const std::string& host : sorted_hosts(options_.variables)) {
    addresses.push_back(Address{host, options_.port}.to_string());
  }
  return ClusterSpec(std::map<std::string, std::vector<std::string>>{{"worker", addresses}});
}

std::optional<TaskId> SageMakerResolver::task() const {
  const std::vector<std::string> hosts = sorted_hosts(options_.variables);
  const std::string current = require_variable(options_.variables, "SM_CURRENT_HOST", "sagemaker", kNotSagemaker);
  const auto at = std::find(hosts.begin(), hosts.end(), current);
  if (at == hosts.end()) {
    fail<InvalidArgument>("[cluster] sagemaker: SM_CURRENT_HOST is \"", current, "\", which is not among SM_HOSTS");
  }
  return TaskId{"worker", static_cast<int>(at - hosts.begin())};
}

}  // namespace cohort
