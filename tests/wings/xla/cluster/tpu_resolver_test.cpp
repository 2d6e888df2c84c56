// Who the processes of a TPU pod are, by libtpu's variables and by answers in the form of Google's metadata server.
#include <gtest/gtest.h>

#include "cohort/cluster/tpu_resolver.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "wings/xla/cluster/tpu_hosts.h"

namespace cohort::tpu_resolver_test {
namespace {

using testing::expect_error;
using Variables = std::map<std::string, std::string>;

TPUClusterResolver resolver(Variables variables, std::optional<bool> metadata = false, HttpFetch fetch = nullptr) {
  return TPUClusterResolver(TPUClusterResolverOptions{.tpu = "local",
                                                      .metadata = metadata,
                                                      .fetch = std::move(fetch),
                                                      .variables = environment_of(std::move(variables))});
}

std::string workers_of(const ClusterSpec& cluster) {
  std::string text;
  for (const auto& [job, tasks] : cluster.jobs()) {
    for (const auto& [index, address] : tasks) text += (text.empty() ? "" : " ") + address;
  }
  return text;
}

TEST(TpuResolver, OneProcessIsNoCluster) {
  for (const Variables& variables : {Variables{},
                                     {{"TPU_WORKER_HOSTNAMES", "localhost"}, {"TPU_WORKER_ID", "0"}},
                                     {{"TPU_PROCESS_BOUNDS", "1,1,1"}, {"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,2,1"}},
                                     {{"TPU_PROCESS_ADDRESSES", "localhost:8476"}}}) {
    EXPECT_TRUE(resolver(variables).cluster_spec().empty());
    EXPECT_FALSE(resolver(variables).task().has_value());
  }
}

TEST(TpuResolver, HostsByTheirNames) {
  const Variables pod{{"TPU_WORKER_HOSTNAMES", "t0,t1,t2,t3"}, {"TPU_WORKER_ID", "2"}, {"TPU_PROCESS_BOUNDS", "2,2,1"}};
  EXPECT_EQ(workers_of(resolver(pod).cluster_spec()), "t0:8482 t1:8482 t2:8482 t3:8482");
  EXPECT_EQ(resolver(pod).task(), (TaskId{"worker", 2}));
  EXPECT_EQ(resolver(pod).master(), "grpc://t0:8482");
  const Variables by_task{{"TPU_WORKER_HOSTNAMES", "t0,fd00::7"}, {"CLOUD_TPU_TASK_ID", "1"}};
  EXPECT_EQ(workers_of(resolver(by_task).cluster_spec()), "t0:8482 [fd00::7]:8482");
  EXPECT_EQ(resolver(by_task).task(), (TaskId{"worker", 1}));
}

TEST(TpuResolver, SeveralProcessesOfAHost) {
  const Variables pod{{"TPU_PROCESS_ADDRESSES", "a:8476,a:8477,b:8476,b:8477"},
                      {"CLOUD_TPU_TASK_ID", "3"},
                      {"TPU_WORKER_HOSTNAMES", "a,b"},
                      {"TPU_WORKER_ID", "1"},
                      {"TPU_PROCESS_BOUNDS", "2,2,1"},
                      {"TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1"}};
  EXPECT_EQ(workers_of(resolver(pod).cluster_spec()), "a:8482 a:8483 b:8482 b:8483");
  EXPECT_EQ(resolver(pod).task(), (TaskId{"worker", 3}));
}

TEST(TpuResolver, AnotherClusterHasTheAddresses) {
  Variables pod{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})"}};
  EXPECT_EQ(workers_of(resolver(pod).cluster_spec()), "a:1 b:1");
  EXPECT_EQ(resolver(pod).task(), (TaskId{"worker", 1}));
  pod["TPU_WORKER_HOSTNAMES"] = "t0,t1";
  pod["TPU_WORKER_ID"] = "1";
  EXPECT_EQ(workers_of(resolver(pod).cluster_spec()), "a:1 b:1");
  pod["TPU_WORKER_HOSTNAMES"] = "t0,t1,t2";
  expect_error<InvalidArgument>(
      [&] { (void)resolver(pod).cluster_spec(); },
      "TPU_WORKER_HOSTNAMES names 3 processes, but the environment (tf_config) has 2 workers");
}

TEST(TpuResolver, ContradictionsNameTheVariable) {
  const auto refused = [](const Variables& variables, const std::string& text) {
    expect_error<InvalidArgument>([&] { (void)resolver(variables).cluster_spec(); }, text);
    expect_error<InvalidArgument>([&] { (void)resolver(variables).task(); }, text);
  };
  refused({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "2"}},
          "TPU_WORKER_ID is \"2\", wanted 0 to 1, because TPU_WORKER_HOSTNAMES names 2 processes");
  refused({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "x"}}, "TPU_WORKER_ID is \"x\"");
  refused({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "7"}, {"CLOUD_TPU_TASK_ID", "0"}}, "TPU_WORKER_ID is");
  refused({{"TPU_WORKER_HOSTNAMES", "a,,b"}, {"TPU_WORKER_ID", "0"}}, "TPU_WORKER_HOSTNAMES is \"a,,b\"");
  refused({{"TPU_WORKER_HOSTNAMES", "a,a"}, {"TPU_WORKER_ID", "0"}}, "a is twice");
  refused({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "0"}, {"TPU_PROCESS_BOUNDS", "2,2,1"}},
          "TPU_PROCESS_BOUNDS is 2,2,1, which is 4 processes, but TPU_WORKER_HOSTNAMES names 2");
  refused({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "0"}, {"TPU_HOST_BOUNDS", "1,1,1"}},
          "TPU_HOST_BOUNDS is 1,1,1, which is 1 processes");
  refused({{"TPU_PROCESS_BOUNDS", "2,1"}}, "TPU_PROCESS_BOUNDS is \"2,1\", wanted three numbers");
  refused({{"TPU_CHIPS_PER_PROCESS_BOUNDS", "2,0,1"}}, "TPU_CHIPS_PER_PROCESS_BOUNDS is \"2,0,1\"");
  refused({{"TPU_PROCESS_ADDRESSES", "a:1,b"}, {"CLOUD_TPU_TASK_ID", "0"}}, "\"b\" is none");
  refused({{"TPU_PROCESS_ADDRESSES", "a:1,a:1"}, {"CLOUD_TPU_TASK_ID", "0"}}, "a:1 is twice");
  refused({{"TPU_PROCESS_ADDRESSES", "a:1,b:1"}, {"CLOUD_TPU_TASK_ID", "-1"}}, "CLOUD_TPU_TASK_ID is \"-1\"");
}

TEST(TpuResolver, WhatIsMissingIsNamed) {
  const auto missing = [](const Variables& variables, const std::string& text) {
    expect_error<FailedPrecondition>([&] { (void)resolver(variables).cluster_spec(); }, text);
  };
  missing({{"TPU_WORKER_HOSTNAMES", "a,b"}}, "but CLOUD_TPU_TASK_ID or TPU_WORKER_ID does not say which");
  missing({{"TPU_PROCESS_ADDRESSES", "a:1,b:1"}, {"TPU_WORKER_ID", "0"}}, "but CLOUD_TPU_TASK_ID does not say which");
  missing({{"TPU_PROCESS_BOUNDS", "2,1,1"}}, "neither TPU_PROCESS_ADDRESSES nor TPU_WORKER_HOSTNAMES names them");
  expect_error<Unimplemented>([] { (void)resolver({{"MEGASCALE_NUM_SLICES", "2"}}).cluster_spec(); }, "several slices");
}

TEST(TpuResolver, AsksTheMetadataServer) {
  std::map<std::string, std::string> answers{{"worker-network-endpoints", "n0:7:10.0.0.1,n1:8:10.0.0.2"},
                                             {"agent-worker-number", "1"}};
  std::vector<HttpRequest> asked;
  const HttpFetch fetch = [&](const HttpRequest& request) {
    asked.push_back(request);
    for (const auto& [end, answer] : answers) {
      if (request.url.ends_with("/instance/attributes/" + end)) return answer;
    }
    throw Unavailable("[cluster] " + request.url + ": answered 404");
  };
  EXPECT_EQ(workers_of(resolver({}, true, fetch).cluster_spec()), "10.0.0.1:8482 10.0.0.2:8482");
  EXPECT_EQ(resolver({}, true, fetch).task(), (TaskId{"worker", 1}));
  EXPECT_EQ(asked.front().headers, std::vector<std::string>{"Metadata-Flavor: Google"});
  asked.clear();
  EXPECT_TRUE(resolver({{"TPU_PROCESS_BOUNDS", "1,1,1"}}, true, fetch).cluster_spec().empty());
  EXPECT_TRUE(resolver({{"TPU_WORKER_HOSTNAMES", "localhost"}}, true, fetch).cluster_spec().empty());
  EXPECT_TRUE(resolver({{"TPU_SKIP_MDS_QUERY", "1"}}, std::nullopt, fetch).cluster_spec().empty());
  EXPECT_TRUE(asked.empty()) << "the variables have said it";
  answers["agent-worker-number"] = "2";
  expect_error<InvalidArgument>([&] { (void)resolver({}, true, fetch).task(); }, "agent-worker-number is \"2\"");
  answers["worker-network-endpoints"] = "n0,n1";
  expect_error<InvalidArgument>([&] { (void)resolver({}, true, fetch).task(); }, "wanted name:id:address");
  answers.clear();
  EXPECT_TRUE(resolver({}, true, fetch).cluster_spec().empty()) << "no metadata, no pod";
}

TEST(TpuResolver, OtherMachinesTPUsAreNoCluster) {
  const TPUClusterResolver elsewhere(TPUClusterResolverOptions{
      .tpu = "grpc://10.0.0.1:8470",
      .variables = environment_of({{"TPU_WORKER_HOSTNAMES", "a,b"}, {"TPU_WORKER_ID", "0"}})});
  EXPECT_TRUE(elsewhere.cluster_spec().empty());
  EXPECT_FALSE(elsewhere.task().has_value());
  expect_error<Unimplemented>([&] { elsewhere.require_local(); }, "grpc://10.0.0.1:8470");
  EXPECT_EQ(TPUClusterResolver(TPUClusterResolverOptions{.variables = environment_of({{"TPU_NAME", "mine"}})}).tpu(),
            "mine");
}

}  // namespace
}  // namespace cohort::tpu_resolver_test
