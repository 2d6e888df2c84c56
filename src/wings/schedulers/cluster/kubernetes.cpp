#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "rpc/address.h"
#include "wings/schedulers/cluster/http.h"

namespace cohort {

namespace {

struct KubernetesPod {
  std::string name;
  std::string ip;
};

std::string read_account(const KubernetesOptions& options, const char* name) {
  const std::string file = options.service_account + "/" + name;
  std::ifstream in(file);
  if (!in) {
    fail<FailedPrecondition>("[cluster] kubernetes: ", file, " cannot be read; is this a pod with a service account?");
  }
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

HttpRequest pods_request(const KubernetesOptions& options, const std::string& selector) {
  constexpr const char* kHint = "not running inside a pod?";
  const std::string host = require_variable(options.variables, "KUBERNETES_SERVICE_HOST", "kubernetes", kHint);
  const int port = require_number(options.variables, "KUBERNETES_SERVICE_PORT", "kubernetes", kHint, 1);
  const std::string ns = options.ns.empty() ? read_account(options, "namespace") : options.ns;
  return {.url = "https://" + Address{host, port}.to_string() + "/api/v1/namespaces/" + url_escaped(ns) +
                 "/pods?labelSelector=" + url_escaped(selector),
          .headers = {"Authorization: Bearer " + read_account(options, "token"), "Accept: application/json"},
          .ca_file = options.service_account + "/ca.crt"};
}

// Adds the running pods of a selector. Pods that have ended belong to an earlier run.
void add_pods(const KubernetesOptions& options, const std::string& selector, std::vector<KubernetesPod>& pods) {
  const HttpRequest request = pods_request(options, selector);
  const std::string answer = options.fetch(request);
  const nlohmann::json tree = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
  try {
    for (const auto& item : tree.at("items")) {
      const auto name = item.at("metadata").at("name").get<std::string>();
      const auto phase = item.at("status").at("phase").get<std::string>();
      if (phase != "Running") {
        fail<FailedPrecondition>("[cluster] kubernetes: pod ", name, " of ", selector, " is ", phase,
                                 ", wanted Running");
      }
      pods.push_back({.name = name, .ip = item.at("status").at("podIP").get<std::string>()});
    }
  } catch (const nlohmann::json::exception& error) {
    fail<InvalidArgument>("[cluster] kubernetes: ", request.url, " is no list of pods: ", error.what());
  }
}

std::map<std::string, std::vector<KubernetesPod>> pods_by_job(const KubernetesOptions& options) {
  std::map<std::string, std::vector<KubernetesPod>> jobs;
  for (const auto& [job, selectors] : options.job_labels) {
    std::vector<KubernetesPod>& pods = jobs[job];
    for (const std::string& selector : selectors) add_pods(options, selector, pods);
    if (pods.empty()) fail<FailedPrecondition>("[cluster] kubernetes: no pod of job ", job, " is there");
    std::sort(pods.begin(), pods.end(), [](const KubernetesPod& a, const KubernetesPod& b) { return a.name < b.name; });
  }
  return jobs;
}

}  // namespace

ClusterSpec KubernetesResolver::cluster_spec() const {
  std::map<std::string, std::vector<std::string>> jobs;
  for (const auto& [job, pods] : pods_by_job(options_)) {
    for (const KubernetesPod& pod : pods) jobs[job].push_back(Address{pod.ip, options_.port}.to_string());
  }
  return ClusterSpec(jobs);
}

std::optional<TaskId> KubernetesResolver::task() const {
  if (options_.task) return options_.task;
  const auto name = variable(options_.variables, "HOSTNAME");
  if (!name) return std::nullopt;
  for (const auto& [job, pods] : pods_by_job(options_)) {
    for (std::size_t i = 0; i < pods.size(); ++i) {
      if (pods[i].name == *name) return TaskId{job, static_cast<int>(i)};
    }
  }
  fail<FailedPrecondition>("[cluster] kubernetes: this pod, ", *name, ", is not among the pods of the jobs");
}

}  // namespace cohort
