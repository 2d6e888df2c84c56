// The choice among the resolvers.
#include "cluster/environment.h"
#include "cohort/cluster_resolver.h"

namespace cohort {

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
