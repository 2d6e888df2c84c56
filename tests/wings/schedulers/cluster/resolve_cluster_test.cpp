// The order in which resolve_cluster() takes the launchers.
#include <gtest/gtest.h>

#include "cohort/cluster/mpi_resolver.h"
#include "tests/wings/schedulers/cluster/slurm_step.h"

namespace cohort::resolve_cluster_test {
namespace {

using testing::slurm;
using testing::slurm_step;
using testing::Variables;

TEST(Resolve, TakesTheFirstThatTheEnvironmentSpeaksOf) {
  const auto name = [](Variables variables) {
    return std::string(resolve_cluster(environment_of(std::move(variables)))->name());
  };
  const Variables torchrun = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "m"}};
  EXPECT_EQ(name({}), "simple");
  EXPECT_EQ(name({{"TF_CONFIG", "{}"}, {"SM_HOSTS", "[]"}}), "tf_config");
  EXPECT_EQ(name(torchrun), "torchrun");
  EXPECT_EQ(name({{"PET_NNODES", "2"}}), "torchrun");
  EXPECT_EQ(name({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}), "mpi");
  EXPECT_EQ(name({{"SLURM_STEP_NUM_TASKS", "2"}}), "slurm");
  EXPECT_EQ(name({{"SLURM_STEP_NUM_TASKS", "1"}}), "simple") << "sbatch alone, without srun";
  EXPECT_EQ(name({{"SM_HOSTS", "[]"}}), "sagemaker");
}

TEST(Resolve, TellsSrunWithPmiFromAnMpirunWithinAnAllocation) {
  const auto name = [](Variables variables) {
    return std::string(resolve_cluster(environment_of(std::move(variables)))->name());
  };
  const auto with = [](Variables first, const Variables& second) {
    first.insert(second.begin(), second.end());
    return first;
  };
  // srun --mpi=pmi2: the same five tasks, said twice.
  const Variables by_srun = with(slurm_step("3"), {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_FD", "9"}});
  EXPECT_EQ(name(by_srun), "slurm");
  EXPECT_EQ(resolve_cluster(environment_of(by_srun))->cluster_spec(), slurm(slurm_step("3")).cluster_spec());
  // sbatch or salloc, then mpirun of Open MPI: on the first node the variables of the job alone, on the others those of
  // the step in which its daemons run.
  const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  EXPECT_EQ(name(with(open_mpi, {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}})), "mpi");
  const Variables of_daemon = {
      {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(name(with(open_mpi, of_daemon)), "mpi");
  EXPECT_EQ(MpiResolver({.variables = environment_of(with(open_mpi, of_daemon))}).task(), (TaskId{"worker", 3}))
      << "not the daemon's rank";
  // mpiexec of MPICH or Intel MPI, whose proxies run in a step of a task a node.
  const Variables hydra = {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "1"}};
  EXPECT_EQ(name(with(hydra, {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}})), "mpi");
  EXPECT_EQ(name(with(hydra, {{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}})), "mpi");
  EXPECT_EQ(name(with(hydra, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}})), "mpi") << "an interactive step";
}

}  // namespace
}  // namespace cohort::resolve_cluster_test
