// What resolvers have in common, and the choice among them.
#include "cluster/environment.h"
#include "cohort/cluster_resolver.h"
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

ClusterResolverPtr resolve_cluster(const Environment& variables) {
  const auto has = [&](const char* name) { return variable(variables, name).has_value(); };
  if (has("TF_CONFIG")) return std::make_shared<TFConfigResolver>(TFConfigOptions{.variables = variables});
  if (has("RANK") && has("WORLD_SIZE") && has("MASTER_ADDR")) {
    return std::make_shared<TorchrunResolver>(TorchrunOptions{.variables = variables});
  }
  if (has("OMPI_COMM_WORLD_SIZE") || has("PMI_SIZE")) {
    return std::make_shared<MpiResolver>(MpiOptions{.variables = variables});
  }
  const auto tasks = variable(variables, "SLURM_STEP_NUM_TASKS");
  if (tasks && *tasks != "1") return std::make_shared<SlurmResolver>(SlurmOptions{.variables = variables});
  if (has("SM_HOSTS")) return std::make_shared<SageMakerResolver>(SageMakerOptions{.variables = variables});
  return std::make_shared<SimpleResolver>(SimpleResolverOptions{});
}

}  // namespace cohort
