// The resolvers that ask an API, with answers in the form that the APIs' references give.
#include <gtest/gtest.h>

#include <utility>

#include "cohort/cluster/scheduler_resolvers.h"
#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

namespace cohort::cloud_resolvers_test {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;
using Jobs = std::map<std::string, std::vector<std::string>>;

// Answers by the end of the URL, and keeps what was asked.
struct FakeApi {
  std::map<std::string, std::string> answers;
  std::vector<HttpRequest> asked = {};

  HttpFetch fetch() {
    return [this](const HttpRequest& request) {
      asked.push_back(request);
      for (const auto& [end, answer] : answers) {
        if (request.url.ends_with(end)) return answer;
      }
      throw Unavailable("[cluster] " + request.url + ": answered 404");
    };
  }
};

std::string pod(const std::string& name, const std::string& ip, const std::string& phase = "Running") {
  return R"({"metadata": {"name": ")" + name + R"("}, "status": {"phase": ")" + phase + R"(", "podIP": ")" + ip +
         R"("}})";
}

class Kubernetes : public ::testing::Test {
 protected:
  Kubernetes() {
    testing::write_file(account_ / "token", "secret\n");
    testing::write_file(account_ / "namespace", "lab");
  }

  KubernetesResolver resolver(KubernetesOptions options = {}) {
    options.service_account = account_.path().string();
    options.fetch = api_.fetch();
    options.variables = environment_of(
        {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"KUBERNETES_SERVICE_PORT", "443"}, {"HOSTNAME", "run-1"}});
    return KubernetesResolver(options);
  }

  TemporaryFolder account_;
  FakeApi api_{{{"pods?labelSelector=job-name%3Dcohort",
                 R"({"items": [)" + pod("run-1", "10.1.0.2") + "," + pod("run-0", "10.1.0.1") + "]}"},
                {"pods?labelSelector=role%3Dps", R"({"items": [)" + pod("ps-0", "fd00::7") + "]}"},
                {"pods?labelSelector=late", R"({"items": [)" + pod("late-0", "", "Pending") + "]}"},
                {"pods?labelSelector=none", R"({"items": []})"},
                {"pods?labelSelector=odd", R"({"kind": "Status"})"}}};
};

TEST_F(Kubernetes, AsksForThePodsOfEachJob) {
  const KubernetesResolver both =
      resolver({.job_labels = {{"worker", {"job-name=cohort"}}, {"ps", {"role=ps"}}}, .port = 99});
  EXPECT_EQ(both.cluster_spec(),
            ClusterSpec(Jobs{{"worker", {"10.1.0.1:99", "10.1.0.2:99"}}, {"ps", {"[fd00::7]:99"}}}));
  EXPECT_EQ(both.task(), (TaskId{"worker", 1})) << "by HOSTNAME";
  EXPECT_EQ(resolver({.task = TaskId{"worker", 0}}).task(), (TaskId{"worker", 0}));
  const HttpRequest& request = api_.asked.front();
  EXPECT_EQ(request.url, "https://10.0.0.1:443/api/v1/namespaces/lab/pods?labelSelector=role%3Dps");
  EXPECT_EQ(request.headers.front(), "Authorization: Bearer secret");
  EXPECT_EQ(request.ca_file, account_.path().string() + "/ca.crt");
}

TEST_F(Kubernetes, WhatIsMissingIsNamed) {
  const auto with = [&](const std::string& selector) { return resolver({.job_labels = {{"worker", {selector}}}}); };
  expect_error<FailedPrecondition>([&] { (void)with("late").cluster_spec(); },
                                   "pod late-0 of late is Pending, wanted Running");
  expect_error<FailedPrecondition>([&] { (void)with("none").cluster_spec(); }, "no pod of job worker");
  expect_error<InvalidArgument>([&] { (void)with("odd").cluster_spec(); }, "is no list of pods");
  expect_error<Unavailable>([&] { (void)with("refused").cluster_spec(); }, "answered 404");
  expect_error<FailedPrecondition>(
      [&] {
        (void)resolver({.job_labels = {{"ps", {"role=ps"}}}}).task();
      },
      "this pod, run-1, is not among the pods");
  expect_error<FailedPrecondition>([] { (void)KubernetesResolver({.variables = environment_of({})}).cluster_spec(); },
                                   "KUBERNETES_SERVICE_HOST is not set; not running inside a pod?");
  KubernetesOptions outside{.service_account = "/nowhere"};
  outside.variables = environment_of({{"KUBERNETES_SERVICE_HOST", "h"}, {"KUBERNETES_SERVICE_PORT", "1"}});
  expect_error<FailedPrecondition>([&] { (void)KubernetesResolver(outside).cluster_spec(); },
                                   "/nowhere/namespace cannot be read");
}

TEST(Gce, ListsTheGroupsInstances) {
  const std::string interfaces = R"({"networkInterfaces": [{"networkIP": "10.0.0.)";
  FakeApi api{
      {{"/token", R"({"access_token": "t"})"},
       {"/listInstances", R"({"items": [{"instance": "https://x/zones/z/instances/b"}, {"instance": "https://x/a"}]})"},
       {"/instances/a", interfaces + "1\"}]}"},
       {"/instances/b", interfaces + "2\"}]}"}}};
  const GceResolver resolver({.project = "p", .zone = "z", .instance_group = "g", .port = 7, .fetch = api.fetch()});
  EXPECT_EQ(resolver.cluster_spec(), ClusterSpec(Jobs{{"worker", {"10.0.0.1:7", "10.0.0.2:7"}}}));
  ASSERT_EQ(api.asked.size(), 4U);
  EXPECT_EQ(api.asked[0].headers.front(), "Metadata-Flavor: Google");
  EXPECT_EQ(api.asked[1].url,
            "https://compute.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/g/listInstances");
  EXPECT_TRUE(api.asked[1].body) << "listInstances is a POST";
  EXPECT_EQ(api.asked[1].headers.front(), "Authorization: Bearer t");
  EXPECT_EQ(api.asked[2].url, "https://compute.googleapis.com/compute/v1/projects/p/zones/z/instances/a");

  api.answers["/listInstances"] = "{}";
  expect_error<FailedPrecondition>([&] { (void)resolver.cluster_spec(); }, "group g has no running instance");
  api.answers["/listInstances"] = "<html>";
  expect_error<InvalidArgument>([&] { (void)resolver.cluster_spec(); }, "has an unexpected answer");
  expect_error<InvalidArgument>([] { GceResolver({.project = "p"}); }, "needs a project, a zone and an instance group");
}

}  // namespace
}  // namespace cohort::cloud_resolvers_test
