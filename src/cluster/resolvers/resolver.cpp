// The parts that all resolvers have in common.
#include "cohort/cluster/cluster_resolver.h"
#include "cohort/device.h"

namespace cohort {

std::string ClusterResolver::master(const std::optional<TaskId>& task) const {
  const ClusterSpec cluster = cluster_spec();
  const std::optional<TaskId> wanted = task ? task : coordination_leader(cluster);
  if (!wanted) return "";
  const std::string& address = cluster.address(*wanted);
  return rpc_layer().empty() || address.empty() ? address : rpc_layer() + "://" + address;
}

std::map<std::string, int> ClusterResolver::num_accelerators() const {
  std::map<std::string, int> counts;
  for (const PhysicalDevice& device : list_physical_devices("GPU")) ++counts[device.type];
  return counts;
}

std::string SimpleResolver::master(const std::optional<TaskId>& task) const {
  return task || options_.master.empty() ? ClusterResolver::master(task) : options_.master;
}

std::map<std::string, int> SimpleResolver::num_accelerators() const {
  return options_.num_accelerators ? *options_.num_accelerators : ClusterResolver::num_accelerators();
}

}  // namespace cohort
