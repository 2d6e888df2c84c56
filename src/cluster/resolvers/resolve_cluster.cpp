// Chooses among the resolvers by the environment variables that launchers set.
#include "cluster/environment.h"
#include "cohort/cluster/cluster_resolver.h"

namespace cohort {

namespace {

// Returns whether srun itself started this process as one of several tasks. Slurm's PMI plugins set PMI_RANK and
// PMI_SIZE as MPI's launchers do, but the other way round a launcher inside a step is not srun: Hydra, which starts its
// proxies by srun, counts processes that are no tasks of the step, and says how many run on a host.
bool is_task_of_step(const Environment& variables) {
  const auto tasks = variable(variables, "SLURM_STEP_NUM_TASKS");
  if (!tasks || *tasks == "1") return false;
  const auto processes = variable(variables, "PMI_SIZE");
  return !processes || (processes == tasks && !variable(variables, "MPI_LOCALNRANKS"));
}

}  // namespace

ClusterResolverPtr resolve_cluster(const Environment& variables) {
  const auto has = [&](const char* name) { return variable(variables, name).has_value(); };
  if (has("TF_CONFIG")) return std::make_shared<TFConfigResolver>(TFConfigOptions{.variables = variables});
  if (has("RANK") && has("WORLD_SIZE") && has("MASTER_ADDR")) {
    return std::make_shared<TorchrunResolver>(TorchrunOptions{.variables = variables});
  }
  // Open MPI's mpirun starts its daemons by srun, so its processes inherit a step that is not theirs.
  if (!has("OMPI_COMM_WORLD_SIZE") && is_task_of_step(variables)) {
    return std::make_shared<SlurmResolver>(SlurmOptions{.variables = variables});
  }
  if (has("OMPI_COMM_WORLD_SIZE") || has("PMI_SIZE")) {
    return std::make_shared<MpiResolver>(MpiOptions{.variables = variables});
  }
  if (has("SM_HOSTS")) return std::make_shared<SageMakerResolver>(SageMakerOptions{.variables = variables});
  return std::make_shared<SimpleResolver>(SimpleResolverOptions{});
}

}  // namespace cohort
