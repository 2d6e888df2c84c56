// Gives the core what this wing has.
#include "base/extension.h"
#include "cluster/environment.h"
#include "cluster/resolver_row.h"
#include "cohort/cluster/scheduler_resolvers.h"

namespace cohort {

namespace {

bool is_torchrun(const Environment& variables) {
  const auto has = [&](const char* name) { return variable(variables, name).has_value(); };
  return (has("RANK") && has("WORLD_SIZE") && has("MASTER_ADDR")) || has("PET_NNODES");
}

// Returns whether srun itself started this process as one of several tasks. Slurm's PMI plugins set PMI_RANK and
// PMI_SIZE as MPI's launchers do, but the other way round a launcher inside a step is not srun: Hydra, which starts its
// proxies by srun, counts processes that are no tasks of the step, and says how many run on a host. Open MPI's mpirun
// starts its daemons by srun, so its processes inherit a step that is not theirs.
bool is_task_of_step(const Environment& variables) {
  if (variable(variables, "OMPI_COMM_WORLD_SIZE")) return false;
  const auto tasks = variable(variables, "SLURM_STEP_NUM_TASKS");
  if (!tasks || *tasks == "1") return false;
  const auto processes = variable(variables, "PMI_SIZE");
  return !processes || (processes == tasks && !variable(variables, "MPI_LOCALNRANKS"));
}

bool is_sagemaker(const Environment& variables) {
  return variable(variables, "SM_HOSTS").has_value();
}

}  // namespace

void install_schedulers() {
  extend(ResolverRow{.name = "torchrun", .place = 10, .applies = is_torchrun, .make = [](const Environment& variables) {
                       return ClusterResolverPtr(
                           std::make_shared<TorchrunResolver>(TorchrunOptions{.variables = variables}));
                     }});
  extend(
      ResolverRow{.name = "slurm", .place = 20, .applies = is_task_of_step, .make = [](const Environment& variables) {
                    return ClusterResolverPtr(std::make_shared<SlurmResolver>(SlurmOptions{.variables = variables}));
                  }});
  extend(ResolverRow{
      .name = "sagemaker", .place = 40, .applies = is_sagemaker, .make = [](const Environment& variables) {
        return ClusterResolverPtr(std::make_shared<SageMakerResolver>(SageMakerOptions{.variables = variables}));
      }});
}

}  // namespace cohort
