#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/address.h"

namespace cohort {

namespace {

constexpr std::array<std::string_view, 4> kJobs = {"chief", "worker", "ps", "evaluator"};

void require_job(const std::string& job) {
  if (std::find(kJobs.begin(), kJobs.end(), job) != kJobs.end()) return;
  fail<InvalidArgument>("[cluster] job \"", job, "\" is not allowed, only chief, worker, ps and evaluator are");
}

std::map<std::string, ClusterSpec::Tasks> numbered(const std::map<std::string, std::vector<std::string>>& jobs) {
  std::map<std::string, ClusterSpec::Tasks> result;
  for (const auto& [job, addresses] : jobs) {
    ClusterSpec::Tasks& tasks = result[job];
    for (std::size_t i = 0; i < addresses.size(); ++i) tasks[static_cast<int>(i)] = addresses[i];
  }
  return result;
}

std::string address_at(const nlohmann::json& value, const std::string& key) {
  if (value.is_string() && parse_address(value.get<std::string>())) return value.get<std::string>();
  fail<InvalidArgument>("[cluster] ", key, " is ", value.dump(), ", wanted a text \"host:port\"");
}

ClusterSpec::Tasks tasks_at(const nlohmann::json& value, const std::string& key) {
  ClusterSpec::Tasks tasks;
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      tasks[static_cast<int>(i)] = address_at(value[i], c10::str(key, "[", i, "]"));
    }
    return tasks;
  }
  if (!value.is_object()) {
    fail<InvalidArgument>("[cluster] ", key, " is ", value.dump(),
                          ", wanted a list of addresses, or a map of them by index");
  }
  for (const auto& [name, address] : value.items()) {
    const std::optional<int> index = parse_int(name);
    if (!index) fail<InvalidArgument>("[cluster] ", key, " has the key \"", name, "\", wanted the index of a task");
    tasks[*index] = address_at(address, c10::str(key, ".", name));
  }
  return tasks;
}

}  // namespace

std::string TaskId::to_string() const {
  return type + " " + std::to_string(index);
}
std::string TaskId::device() const {
  return "/job:" + type + "/replica:0/task:" + std::to_string(index);
}

ClusterSpec::ClusterSpec(std::map<std::string, Tasks> jobs) : jobs_(std::move(jobs)) {
  std::map<std::string, TaskId> seen;
  for (const auto& [job, tasks] : jobs_) {
    require_job(job);
    if (tasks.empty()) fail<InvalidArgument>("[cluster] job ", job, " has no tasks; leave it out");
    for (const auto& [index, address] : tasks) {
      const TaskId task{job, index};
      if (index < 0) fail<InvalidArgument>("[cluster] job ", job, " has a task of index ", index);
      if (address.empty()) continue;
      if (!parse_address(address)) {
        fail<InvalidArgument>("[cluster] the address of ", task.to_string(), " is \"", address, "\", wanted host:port");
      }
      const auto [other, is_new] = seen.emplace(address, task);
      if (is_new) continue;
      fail<InvalidArgument>("[cluster] ", other->second.to_string(), " and ", task.to_string(),
                            " have the same address, ", address);
    }
  }
}

ClusterSpec::ClusterSpec(const std::map<std::string, std::vector<std::string>>& jobs) : ClusterSpec(numbered(jobs)) {}

ClusterSpec ClusterSpec::from_json(const std::string& text, const std::string& source) {
  const nlohmann::json tree = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!tree.is_object()) {
    fail<InvalidArgument>("[cluster] ", source, " is ", tree.is_discarded() ? text : tree.dump(),
                          ", wanted a JSON map of jobs to addresses");
  }
  std::map<std::string, Tasks> jobs;
  for (const auto& [job, tasks] : tree.items()) jobs[job] = tasks_at(tasks, c10::str(source, ".", job));
  return ClusterSpec(std::move(jobs));
}

std::string ClusterSpec::to_json() const {
  nlohmann::json tree = nlohmann::json::object();
  for (const auto& [job, tasks] : jobs_) {
    const bool dense = tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
    nlohmann::json& entry = tree[job] = dense ? nlohmann::json::array() : nlohmann::json::object();
    for (const auto& [index, address] : tasks) {
      if (dense) {
        entry.push_back(address);
      } else {
        entry[std::to_string(index)] = address;
      }
    }
  }
  return tree.dump();
}

int ClusterSpec::num_tasks(const std::string& job) const {
  const auto tasks = jobs_.find(job);
  return tasks == jobs_.end() ? 0 : static_cast<int>(tasks->second.size());
}

bool ClusterSpec::has(const TaskId& task) const {
  const auto tasks = jobs_.find(task.type);
  return tasks != jobs_.end() && tasks->second.contains(task.index);
}

const std::string& ClusterSpec::address(const TaskId& task) const {
  if (has(task)) return jobs_.at(task.type).at(task.index);
  fail<NotFound>("[cluster] there is no ", task.to_string(), " in ", to_json());
}

}  // namespace cohort
