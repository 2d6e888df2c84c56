// The resolvers that read variables and nothing else.
#include "cohort/cluster/scheduler_resolvers.h"

#include <gtest/gtest.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/wings/schedulers/cluster/slurm_step.h"

namespace cohort::scheduler_resolvers_test {
namespace {

using testing::expect_error;
using testing::slurm;
using testing::slurm_step;
using testing::Variables;
using Jobs = std::map<std::string, std::vector<std::string>>;

TEST(Slurm, AddressesFollowNodesAndTasks) {
  const SlurmResolver resolver = slurm(slurm_step("3"));
  EXPECT_EQ(resolver.cluster_spec(),
            ClusterSpec(Jobs{{"worker", {"n08:8888", "n08:8889", "n09:8888", "n09:8889", "m1:8888"}}}));
  EXPECT_EQ(resolver.task(), (TaskId{"worker", 3}));
  Variables cyclic = slurm_step("3");
  cyclic["SLURM_DISTRIBUTION"] = "cyclic";
  EXPECT_EQ(slurm(cyclic).cluster_spec(),
            ClusterSpec(Jobs{{"worker", {"n08:8888", "n09:8888", "m1:8888", "n08:8889", "n09:8889"}}}));
}

TEST(Slurm, JobsAreGivenOutByName) {
  const SlurmOptions options{.jobs = {{"worker", 3}, {"chief", 1}, {"ps", 1}}, .port_base = 10};
  EXPECT_EQ(slurm(slurm_step("1"), options).cluster_spec(),
            ClusterSpec(Jobs{{"chief", {"n08:10"}}, {"ps", {"n08:11"}}, {"worker", {"n09:10", "n09:11", "m1:10"}}}));
  EXPECT_EQ(slurm(slurm_step("1"), options).task(), (TaskId{"ps", 0}));
  EXPECT_EQ(slurm(slurm_step("4"), options).task(), (TaskId{"worker", 2}));
  expect_error<InvalidArgument>(
      [] {
        (void)slurm(slurm_step("0"), {.jobs = {{"worker", 6}}}).cluster_spec();
      },
      "the jobs want 6 tasks, the step has 5");
}

TEST(Slurm, GpusAreDividedAmongTheTasksOfANode) {
  Variables variables = slurm_step("3");
  variables["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  EXPECT_EQ(slurm(variables).visible_gpus(), (std::vector<int>{6, 7}));
  EXPECT_EQ(slurm(variables).num_accelerators(), (std::map<std::string, int>{{"GPU", 2}}));
  EXPECT_EQ(slurm(variables, {.gpus_per_task = 1}).visible_gpus(), (std::vector<int>{5}));
  EXPECT_EQ(slurm(variables, {.gpus_per_node = 2}).visible_gpus(), (std::vector<int>{5}));
  variables["CUDA_VISIBLE_DEVICES"] = "GPU-8932f937, MIG-0a,GPU-11,GPU-12";
  EXPECT_EQ(slurm(variables).visible_gpus(), (std::vector<int>{2, 3})) << "by their places";
  variables["CUDA_VISIBLE_DEVICES"] = "NoDevFiles";
  EXPECT_EQ(slurm(variables).visible_gpus(), std::vector<int>{});
  variables["CUDA_VISIBLE_DEVICES"] = "4,5,6;7";
  expect_error<InvalidArgument>([&] { (void)slurm(variables).visible_gpus(); }, "of which \"6;7\" is no GPU");
  variables["CUDA_VISIBLE_DEVICES"] = "4,5,6,7";
  EXPECT_EQ(slurm(slurm_step("3"), {.gpus_per_node = 4}).visible_gpus(), (std::vector<int>{2, 3})) << "as it is told";
  expect_error<InvalidArgument>([&] { (void)slurm(variables, {.gpus_per_node = 5}).visible_gpus(); },
                                "gpus_per_node is 5, this node has 4");
  expect_error<InvalidArgument>([&] { (void)slurm(variables, {.gpus_per_task = 3}).visible_gpus(); },
                                "gpus_per_task is 3 for up to 2 tasks a node, this node has 4");
}

TEST(Slurm, WhatIsMissingOrWrongIsNamed) {
  for (const auto& [name, value] : slurm_step("0")) {
    Variables variables = slurm_step("0");
    variables.erase(name);
    expect_error<FailedPrecondition>([&] { (void)slurm(variables).cluster_spec(); },
                                     name + " is not set; not running inside a Slurm step?");
  }
  expect_error<InvalidArgument>([] { (void)slurm(slurm_step("5")).task(); }, "SLURM_PROCID is 5, but the step has 5");
  expect_error<InvalidArgument>([] { (void)slurm(slurm_step("x")).task(); }, "SLURM_PROCID is \"x\"");
  Variables variables = slurm_step("0");
  variables["SLURM_STEP_TASKS_PER_NODE"] = "2(x2)";
  expect_error<InvalidArgument>([&] { (void)slurm(variables).cluster_spec(); },
                                "4 tasks on 2 nodes; the step has 5 tasks on 3");
  EXPECT_EQ(slurm(variables, {.tasks_per_node = 2}).cluster_spec().num_tasks("worker"), 5);
  expect_error<InvalidArgument>([&] { (void)slurm(variables, {.tasks_per_node = 1}).cluster_spec(); },
                                "tasks_per_node is 1 on 3 nodes, the step has 5");
  variables = slurm_step("2");
  variables["SLURMD_NODENAME"] = "m1";
  expect_error<FailedPrecondition>([&] { (void)slurm(variables).task(); }, "task 2 runs on m1 and should be on n09");
}

TEST(SageMaker, HostsAreSorted) {
  const auto make = [](Variables variables) {
    return SageMakerResolver({.variables = environment_of(std::move(variables))});
  };
  const SageMakerResolver resolver = make({{"SM_HOSTS", R"(["algo-2", "algo-1"])"}, {"SM_CURRENT_HOST", "algo-2"}});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec(Jobs{{"worker", {"algo-1:2223", "algo-2:2223"}}}));
  EXPECT_EQ(resolver.task(), (TaskId{"worker", 1}));
  expect_error<FailedPrecondition>([&] { (void)make({}).cluster_spec(); }, "SM_HOSTS is not set; not a SageMaker");
  expect_error<InvalidArgument>([&] { (void)make({{"SM_HOSTS", "a"}}).cluster_spec(); }, "SM_HOSTS is a, wanted");
  expect_error<InvalidArgument>(
      [&] {
        (void)make({{"SM_HOSTS", R"(["a"])"}, {"SM_CURRENT_HOST", "b"}}).task();
      },
      "SM_CURRENT_HOST is \"b\"");
}

TEST(Torchrun, KnowsTheFirstAddressOnly) {
  const auto make = [](Variables variables) {
    return TorchrunResolver({.variables = environment_of(std::move(variables))});
  };
  Variables variables = {{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(make(variables).cluster_spec(), ClusterSpec(Jobs{{"worker", {"m:29500", "", ""}}}));
  EXPECT_EQ(make(variables).task(), (TaskId{"worker", 1}));
  for (const auto& [name, value] : variables) {
    Variables fewer = variables;
    fewer.erase(name);
    expect_error<FailedPrecondition>([&] { (void)make(fewer).cluster_spec(); }, name + " is not set");
  }
  variables["RANK"] = "3";
  expect_error<InvalidArgument>([&] { (void)make(variables).task(); }, "RANK is 3 and WORLD_SIZE is 3");
}

TEST(Torchrun, ReadsWhatKubeflowTellsANode) {
  const auto make = [](Variables variables) {
    return TorchrunResolver({.variables = environment_of(std::move(variables))});
  };
  Variables variables = {{"PET_NNODES", "3"},
                         {"PET_NODE_RANK", "1"},
                         {"PET_NPROC_PER_NODE", "1"},
                         {"PET_MASTER_ADDR", "m"},
                         {"PET_MASTER_PORT", "29500"}};
  EXPECT_EQ(make(variables).cluster_spec(), ClusterSpec(Jobs{{"worker", {"m:29500", "", ""}}}));
  EXPECT_EQ(make(variables).task(), (TaskId{"worker", 1}));
  for (const char* name : {"PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}) {
    Variables fewer = variables;
    fewer.erase(name);
    expect_error<FailedPrecondition>([&] { (void)make(fewer).cluster_spec(); }, std::string(name) + " is not set");
  }
  Variables wrong = variables;
  wrong["PET_NODE_RANK"] = "3";
  expect_error<InvalidArgument>([&] { (void)make(wrong).task(); }, "PET_NODE_RANK is 3 and PET_NNODES is 3");
  wrong = variables;
  wrong["PET_NPROC_PER_NODE"] = "auto";
  expect_error<InvalidArgument>([&] { (void)make(wrong).task(); }, "PET_NPROC_PER_NODE is auto, wanted 1");
  // A launcher has made ranks of it.
  variables.insert({{"RANK", "5"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "n"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(make(variables).task(), (TaskId{"worker", 5}));
}

}  // namespace
}  // namespace cohort::scheduler_resolvers_test
