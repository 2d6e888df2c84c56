// The resolvers that read variables and nothing else.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::resolvers_test {
namespace {

using testing::expect_error;
using Jobs = std::map<std::string, std::vector<std::string>>;
using Variables = std::map<std::string, std::string>;

constexpr const char* kConfig =
    R"({"cluster": {"chief": ["c:1"], "worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})";

TFConfigResolver tf_config(const std::string& text, TFConfigOptions options = {}) {
  options.variables = environment_of({{"TF_CONFIG", text}});
  return TFConfigResolver(options);
}

TEST(TFConfig, GivesTheClusterAndTheTask) {
  const TFConfigResolver resolver = tf_config(kConfig);
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec(Jobs{{"chief", {"c:1"}}, {"worker", {"a:1", "b:1"}}}));
  EXPECT_EQ(resolver.task(), (TaskId{"worker", 1}));
  EXPECT_EQ(resolver.master(), "b:1");
  EXPECT_EQ(resolver.master(TaskId{"worker", 0}), "a:1");
  EXPECT_EQ(tf_config(kConfig, {.rpc_layer = "grpc"}).master(), "grpc://b:1");
  EXPECT_EQ(resolver.rpc_layer(), "");
  EXPECT_EQ(resolver.environment(), "");
}

TEST(TFConfig, OverridesAndOptionalKeys) {
  EXPECT_EQ(tf_config(kConfig, {.task_id = 0}).task(), (TaskId{"worker", 0}));
  EXPECT_EQ(tf_config(kConfig, {.task_type = "chief", .task_id = 0}).task(), (TaskId{"chief", 0}));
  EXPECT_EQ(tf_config(R"({"task": {"type": "worker", "index": "2"}})").task(), (TaskId{"worker", 2}));
  EXPECT_EQ(tf_config(R"({"task": {"type": "chief"}})").task(), (TaskId{"chief", 0}));
  EXPECT_EQ(tf_config(R"({"rpc_layer": "grpc+x", "environment": "google"})").rpc_layer(), "grpc+x");
  EXPECT_EQ(tf_config(R"({"rpc_layer": "grpc+x", "environment": "google"})").environment(), "");
  EXPECT_EQ(tf_config(R"({"session_master": "here"})").master(), "here");
  EXPECT_EQ(tf_config(R"({"cluster": {"worker": ["a:1"]}})").master(), "") << "a single task";
}

TEST(TFConfig, WithoutItThereIsNoCluster) {
  for (const char* text : {"{}", "[]"}) {
    EXPECT_TRUE(tf_config(text).cluster_spec().empty());
    EXPECT_EQ(tf_config(text).task(), std::nullopt);
    EXPECT_EQ(tf_config(text).master(), "");
  }
  const TFConfigResolver unset({.variables = environment_of({})});
  EXPECT_TRUE(unset.cluster_spec().empty());
  EXPECT_EQ(unset.task(), std::nullopt);
  expect_error<InvalidArgument>([] { (void)tf_config("").cluster_spec(); }, "TF_CONFIG is no JSON");
}

TEST(TFConfig, WhatIsMalformedIsNamed) {
  expect_error<InvalidArgument>([] { (void)tf_config("{\"a\"").cluster_spec(); }, "TF_CONFIG is no JSON, [");
  expect_error<InvalidArgument>([] { (void)tf_config("2e828").cluster_spec(); }, "number overflow parsing '2e828'");
  expect_error<InvalidArgument>([] { (void)tf_config("[1]").task(); }, "TF_CONFIG is [1], wanted a JSON map");
  expect_error<InvalidArgument>([] { (void)tf_config(R"({"cluster": {"worker": [1]}})").cluster_spec(); },
                                "TF_CONFIG: cluster.worker[0] is 1");
  expect_error<InvalidArgument>([] { (void)tf_config(R"({"task": 3})").task(); }, "TF_CONFIG: task is 3");
  expect_error<InvalidArgument>([] { (void)tf_config(R"({"task": {"index": 1}})").task(); }, "task.type is missing");
  for (const char* index : {"-1", "1.5", "\"x\"", "null", "99999999999"}) {
    const std::string text = R"({"task": {"type": "worker", "index": )" + std::string(index) + "}}";
    expect_error<InvalidArgument>([&] { (void)tf_config(text).task(); }, "task.index is " + std::string(index));
  }
}

TEST(Union, JoinsJobsInOrder) {
  const auto simple = [](const ClusterSpec& cluster, std::optional<TaskId> task = std::nullopt) {
    return std::make_shared<SimpleResolver>(
        SimpleResolverOptions{.cluster = cluster, .task = task, .rpc_layer = "first"});
  };
  const auto one = simple(ClusterSpec(Jobs{{"worker", {"a:1"}}}), TaskId{"worker", 0});
  const auto two = simple(ClusterSpec(Jobs{{"worker", {"b:1"}}, {"ps", {"p:1"}}}), TaskId{"ps", 0});
  const UnionResolver both({one, two});
  EXPECT_EQ(both.cluster_spec(), ClusterSpec(Jobs{{"worker", {"a:1", "b:1"}}, {"ps", {"p:1"}}}));
  EXPECT_EQ(both.task(), (TaskId{"worker", 0}));
  EXPECT_EQ(both.rpc_layer(), "first");
  EXPECT_EQ(UnionResolver({one, two}, {.task = TaskId{"ps", 0}, .rpc_layer = "x"}).task(), (TaskId{"ps", 0}));
  EXPECT_EQ(UnionResolver({one, two}, {.rpc_layer = "x"}).rpc_layer(), "x");
  expect_error<InvalidArgument>([] { UnionResolver(std::vector<ClusterResolverPtr>{}); },
                                "needs at least one resolver");

  const auto gaps = simple(ClusterSpec({{"worker", ClusterSpec::Tasks{{1, "c:1"}}}}));
  EXPECT_EQ(UnionResolver({one, gaps}).cluster_spec().to_json(), R"({"worker":["a:1","c:1"]})");
  const auto collides = simple(ClusterSpec({{"worker", ClusterSpec::Tasks{{1, "d:1"}}}}));
  expect_error<InvalidArgument>(
      [&] {
        (void)UnionResolver({gaps, collides}).cluster_spec();
      },
      "two resolvers have a worker 1");
}

Variables slurm_step(const std::string& rank) {
  return {{"SLURM_PROCID", rank},
          {"SLURM_STEP_NUM_TASKS", "5"},
          {"SLURM_STEP_NODELIST", "n[08-09],m1"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}};
}

SlurmResolver slurm(Variables variables, SlurmOptions options = {}) {
  options.variables = environment_of(std::move(variables));
  return SlurmResolver(options);
}

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

TEST(Resolve, TakesTheFirstThatTheEnvironmentSpeaksOf) {
  const auto name = [](Variables variables) {
    return std::string(resolve_cluster(environment_of(std::move(variables)))->name());
  };
  const Variables torchrun = {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "m"}};
  EXPECT_EQ(name({}), "simple");
  EXPECT_EQ(name({{"TF_CONFIG", "{}"}, {"SM_HOSTS", "[]"}}), "tf_config");
  EXPECT_EQ(name(torchrun), "torchrun");
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

TEST(ConfigureCluster, WritesTFConfigFromFlags) {
  unsetenv("TF_CONFIG");
  EXPECT_EQ(configure_cluster(""), 1);
  expect_error<InvalidArgument>([] { configure_cluster("a:1,b:1"); }, "names 2 hosts and task_index is -1");
  expect_error<InvalidArgument>([] { configure_cluster("a:1,b:1", 2); }, "task_index is 2, wanted 0 to 1");
  expect_error<InvalidArgument>([] { configure_cluster("a:1,b", 0); }, "the address of worker 1 is \"b\"");
  EXPECT_FALSE(std::getenv("TF_CONFIG"));
  EXPECT_EQ(configure_cluster("a:1,b:1", 1), 2);
  EXPECT_EQ(TFConfigResolver().cluster_spec(), ClusterSpec(Jobs{{"worker", {"a:1", "b:1"}}}));
  EXPECT_EQ(TFConfigResolver().task(), (TaskId{"worker", 1}));
  EXPECT_EQ(configure_cluster("x:1", 0), 2) << "TF_CONFIG is there and stays";
  unsetenv("TF_CONFIG");
  EXPECT_EQ(configure_cluster("a:1"), 1);
  EXPECT_EQ(TFConfigResolver().task(), (TaskId{"worker", 0}));
  unsetenv("TF_CONFIG");
}

}  // namespace
}  // namespace cohort::resolvers_test
