#include <gtest/gtest.h>

#include "cohort/cluster/cluster_spec.h"
#include "cohort/error.h"
#include "rpc/address.h"
#include "tests/support/errors.h"

namespace cohort::cluster_spec_test {
namespace {

using testing::expect_error;
using Jobs = std::map<std::string, std::vector<std::string>>;

TEST(Address, ParsesAndPrints) {
  for (const char* text : {"host:1", "10.0.0.1:65535", "[::1]:80", "[fe80::1%eth0]:80", "a-b_c.svc:2222"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->to_string(), text);
  }
  for (const char* text :
       {"", "host", ":1", "host:", "host:0", "host:65536", "host:1x", "ho st:1", "::1:80", "[]:1", "http://a:1"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(ClusterSpec, HoldsJobsTasksAndAddresses) {
  const ClusterSpec cluster(Jobs{{"worker", {"a:1", "b:1"}}, {"ps", {"c:1"}}});
  EXPECT_EQ(cluster.num_tasks("worker"), 2);
  EXPECT_EQ(cluster.num_tasks("chief"), 0);
  EXPECT_EQ(cluster.address({"worker", 1}), "b:1");
  EXPECT_TRUE(cluster.has({"ps", 0}));
  EXPECT_FALSE(cluster.has({"ps", 1}));
  expect_error<NotFound>([&] { (void)cluster.address({"ps", 1}); }, "there is no ps 1 in {\"ps\":[\"c:1\"]");
  EXPECT_TRUE(ClusterSpec().empty());
}

TEST(ClusterSpec, ComesBackFromItsJson) {
  for (const char* text :
       {R"({})", R"({"ps":["c:1"],"worker":["a:1","b:1"]})", R"({"worker":{"1":"a:1","4":"b:1"}})"}) {
    EXPECT_EQ(ClusterSpec::from_json(text).to_json(), text);
  }
  EXPECT_EQ(ClusterSpec::from_json(R"({"worker": {"0": "a:1", "1": "b:1"}})").to_json(), R"({"worker":["a:1","b:1"]})");
}

TEST(ClusterSpec, MalformedJsonNamesTheKeyAndTheValue) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[", "cluster is [, wanted a JSON map"},
      {"[]", "cluster is [], wanted a JSON map"},
      {R"({"worker": "a:1"})", "cluster.worker is \"a:1\", wanted a list of addresses"},
      {R"({"worker": ["a:1", 3]})", "cluster.worker[1] is 3, wanted a text \"host:port\""},
      {R"({"worker": ["a"]})", "cluster.worker[0] is \"a\", wanted a text \"host:port\""},
      {R"({"worker": {"x": "a:1"}})", "cluster.worker has the key \"x\", wanted the index of a task"},
      {R"({"worker": {"0": "a:"}})", "cluster.worker.0 is \"a:\""},
      {R"({"worker": {"-1": "a:1"}})", "a task of index -1"},
      {R"({"worker": []})", "job worker has no tasks"},
      {R"({"master": ["a:1"]})", "job \"master\" is not allowed, only chief, worker, ps and evaluator are"},
      {R"({"worker": ["a:1", "b:1"], "ps": ["b:1"]})", "ps 0 and worker 1 have the same address, b:1"},
  };
  for (const auto& [text, problem] : cases) {
    expect_error<InvalidArgument>([&, text = text] { (void)ClusterSpec::from_json(text); }, problem);
  }
}

TEST(Roles, ThereIsOneChiefAndOneEvaluator) {
  const ClusterSpec chiefs(Jobs{{"chief", {"a:1", "b:1"}}, {"worker", {"c:1"}}});
  const ClusterSpec evaluators(Jobs{{"evaluator", {"a:1", "b:1"}}, {"worker", {"c:1"}}});
  expect_error<InvalidArgument>([&] { is_chief(chiefs, {"chief", 0}); }, "job chief has 2 tasks, at most 1");
  expect_error<InvalidArgument>([&] { worker_count(chiefs, "worker"); }, "job chief has 2 tasks, at most 1");
  expect_error<InvalidArgument>([&] { id_in_cluster(evaluators, {"worker", 0}); }, "job evaluator has 2 tasks");
  expect_error<InvalidArgument>([&] { collective_leader(evaluators, {"worker", 0}); }, "job evaluator has 2 tasks");
}

TEST(Roles, ChiefIsWhoOwnsCheckpoints) {
  const ClusterSpec with_chief(
      Jobs{{"chief", {"c:1"}}, {"worker", {"a:1", "b:1"}}, {"ps", {"p:1"}}, {"evaluator", {"e:1"}}});
  EXPECT_TRUE(is_chief(with_chief, {"chief", 0}));
  EXPECT_TRUE(is_chief(with_chief, {"evaluator", 0}));
  EXPECT_FALSE(is_chief(with_chief, {"worker", 0}));
  EXPECT_FALSE(is_chief(with_chief, {"ps", 0}));
  const ClusterSpec workers(Jobs{{"worker", {"a:1", "b:1"}}});
  EXPECT_TRUE(is_chief(workers, {"worker", 0}));
  EXPECT_FALSE(is_chief(workers, {"worker", 1}));
  EXPECT_TRUE(is_chief(workers, {"evaluator", 0})) << "an evaluator may be missing from the cluster";
  expect_error<InvalidArgument>(
      [&] {
        is_chief(workers, {"worker", 2});
      },
      "the task index of worker 2 is not among the 2");
  expect_error<InvalidArgument>([&] { is_chief(workers, {"ps", 0}); }, "task type \"ps\" is not among the jobs");
  expect_error<InvalidArgument>([&] { is_chief(workers, {"evaluator", 1}); }, "task type \"evaluator\"");
}

TEST(Roles, CountsAndIds) {
  const ClusterSpec with_chief(
      Jobs{{"chief", {"c:1"}}, {"worker", {"a:1", "b:1"}}, {"ps", {"p:1"}}, {"evaluator", {"e:1"}}});
  EXPECT_EQ(worker_count(with_chief, "worker"), 3);
  EXPECT_EQ(worker_count(with_chief, "chief"), 3);
  EXPECT_EQ(worker_count(with_chief, "evaluator"), 1);
  expect_error<InvalidArgument>([&] { worker_count(with_chief, "ps"); }, "task type is \"ps\"");
  EXPECT_EQ(id_in_cluster(with_chief, {"chief", 0}), 0);
  EXPECT_EQ(id_in_cluster(with_chief, {"worker", 1}), 2);
  EXPECT_EQ(id_in_cluster(with_chief, {"evaluator", 0}), 0);
  expect_error<InvalidArgument>([&] { id_in_cluster(with_chief, {"ps", 0}); }, "ps 0 has no id");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(id_in_cluster(with_chief, task_of_rank(with_chief, rank)), rank);
  const ClusterSpec workers(Jobs{{"worker", {"a:1", "b:1"}}});
  EXPECT_EQ(id_in_cluster(workers, {"worker", 1}), 1);
  EXPECT_EQ(task_of_rank(workers, 1), (TaskId{"worker", 1}));
}

TEST(Roles, Leaders) {
  const ClusterSpec with_chief(Jobs{{"chief", {"c:1"}}, {"worker", {"a:1"}}});
  const ClusterSpec with_ps(Jobs{{"chief", {"c:1"}}, {"worker", {"a:1"}}, {"ps", {"p:1"}}});
  const ClusterSpec workers(Jobs{{"worker", {"a:1"}}});
  EXPECT_EQ(collective_leader(with_chief, {"worker", 0}), (TaskId{"chief", 0}));
  EXPECT_EQ(collective_leader(workers, {"worker", 0}), (TaskId{"worker", 0}));
  EXPECT_EQ(collective_leader(workers, {"evaluator", 0}), std::nullopt);
  EXPECT_EQ(collective_leader({}, {"worker", 0}), std::nullopt);
  EXPECT_EQ(coordination_leader(with_ps), (TaskId{"ps", 0}));
  EXPECT_EQ(coordination_leader(with_chief), (TaskId{"chief", 0}));
  EXPECT_EQ(coordination_leader(workers), (TaskId{"worker", 0}));
  EXPECT_EQ(coordination_leader({}), std::nullopt);
}

}  // namespace
}  // namespace cohort::cluster_spec_test
