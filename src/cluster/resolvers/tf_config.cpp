#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "cluster/environment.h"
#include "cohort/cluster/cluster_resolver.h"
#include "rpc/address.h"

namespace cohort {

namespace {

nlohmann::json read(const Environment& variables) {
  const std::string text = variables("TF_CONFIG").value_or("{}");
  nlohmann::json tree;
  try {
    tree = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail<InvalidArgument>("[cluster] TF_CONFIG is no JSON, ", error.what(), ": ", text);
  }
  if (tree.is_array() && tree.empty()) return nlohmann::json::object();  // TensorFlow reads a cluster without tasks
  if (!tree.is_object()) fail<InvalidArgument>("[cluster] TF_CONFIG is ", text, ", wanted a JSON map");
  return tree;
}

std::optional<std::string> text_at(const nlohmann::json& tree, const char* key, const std::string& path) {
  if (!tree.contains(key) || tree.at(key).is_null()) return std::nullopt;
  if (tree.at(key).is_string()) return tree.at(key).get<std::string>();
  fail<InvalidArgument>("[cluster] TF_CONFIG: ", path, key, " is ", tree.at(key).dump(), ", wanted a text");
}

// Returns the index, which is a number or a text that Python's int() takes for one.
std::optional<int> index_of(const nlohmann::json& task) {
  if (!task.contains("index")) return std::nullopt;
  const nlohmann::json& index = task.at("index");
  std::optional<int> number;
  if (index.is_number_integer()) number = parse_int(index.dump());
  if (index.is_string()) number = parse_int(index.get<std::string>());
  if (number && *number >= 0) return number;
  fail<InvalidArgument>("[cluster] TF_CONFIG: task.index is ", index.dump(), ", wanted the number of a task");
}

nlohmann::json task_of(const nlohmann::json& tree) {
  if (!tree.contains("task")) return nlohmann::json::object();
  if (tree.at("task").is_object()) return tree.at("task");
  fail<InvalidArgument>("[cluster] TF_CONFIG: task is ", tree.at("task").dump(), ", wanted a map of type and index");
}

}  // namespace

ClusterSpec TFConfigResolver::cluster_spec() const {
  const nlohmann::json tree = read(options_.variables);
  if (!tree.contains("cluster") || tree.at("cluster").is_null()) return {};
  return ClusterSpec::from_json(tree.at("cluster").dump(), "TF_CONFIG: cluster");
}

std::optional<TaskId> TFConfigResolver::task() const {
  const nlohmann::json task = task_of(read(options_.variables));
  const std::optional<std::string> type = options_.task_type ? options_.task_type : text_at(task, "type", "task.");
  const std::optional<int> index = options_.task_id ? options_.task_id : index_of(task);
  if (!type && !index) return std::nullopt;
  if (!type) fail<InvalidArgument>("[cluster] TF_CONFIG: task.type is missing");
  const TaskId named{.type = *type, .index = index.value_or(0)};
  const ClusterSpec cluster = cluster_spec();
  if (!cluster.empty() && !cluster.has(named)) require_task(cluster, named);
  return named;
}

std::string TFConfigResolver::rpc_layer() const {
  if (options_.rpc_layer) return *options_.rpc_layer;
  return text_at(read(options_.variables), "rpc_layer", "").value_or("");
}

std::string TFConfigResolver::master(const std::optional<TaskId>& task) const {
  const std::optional<std::string> session = text_at(read(options_.variables), "session_master", "");
  if (session) return *session;
  const ClusterSpec cluster = cluster_spec();
  const bool alone = cluster.jobs().size() == 1 && cluster.jobs().begin()->second.size() == 1;
  if (alone || cluster.empty()) return "";
  const std::optional<TaskId> wanted = task ? task : this->task();
  if (!wanted) fail<InvalidArgument>("[cluster] TF_CONFIG has no task, wanted the type and the index of this process");
  return ClusterResolver::master(wanted);
}

int configure_cluster(const std::string& worker_hosts, int task_index) {
  const Environment variables = process_environment();
  if (variable(variables, "TF_CONFIG")) {
    const ClusterSpec cluster = TFConfigResolver().cluster_spec();
    return cluster.num_tasks("chief") + cluster.num_tasks("worker");
  }
  if (worker_hosts.empty()) return 1;
  std::vector<std::string> hosts;
  for (std::size_t begin = 0; begin <= worker_hosts.size();) {
    const std::size_t comma = std::min(worker_hosts.find(',', begin), worker_hosts.size());
    hosts.push_back(worker_hosts.substr(begin, comma - begin));
    begin = comma + 1;
  }
  if (hosts.size() == 1 && task_index == -1) task_index = 0;
  if (task_index < 0 || task_index >= static_cast<int>(hosts.size())) {
    fail<InvalidArgument>("[cluster] worker_hosts names ", hosts.size(), " hosts and task_index is ", task_index,
                          ", wanted 0 to ", hosts.size() - 1);
  }
  const int count = static_cast<int>(hosts.size());
  const std::map<std::string, std::vector<std::string>> jobs{{"worker", std::move(hosts)}};
  const nlohmann::json config{{"cluster", nlohmann::json::parse(ClusterSpec(jobs).to_json())},
                              {"task", {{"type", "worker"}, {"index", task_index}}}};
  setenv("TF_CONFIG", config.dump().c_str(), /*replace=*/0);  // NOLINT(concurrency-mt-unsafe): documented
  return count;
}

}  // namespace cohort
