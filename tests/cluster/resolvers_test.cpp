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

TEST(ResolveCluster, AProcessOfAJobDoesNotTrainAlone) {
  for (const std::string variable : {"SLURM_STEP_NUM_TASKS", "PMI_SIZE", "SM_HOSTS"}) {
    try {
      EXPECT_NE(resolve_cluster(environment_of({{variable, "2"}}))->name(), "simple");
    } catch (const Unimplemented& error) {  // this build has no resolver for it
      EXPECT_NE(std::string(error.what()).find(variable + " is 2"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(resolve_cluster(environment_of({{"SLURM_STEP_NUM_TASKS", "1"}}))->name(), "simple");
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
