// Cluster resolvers and partitioners against TensorFlow's.
#include <gtest/gtest.h>

#include "cohort/cluster/cluster_resolver.h"
#include "cohort/cluster/partitioners.h"
#include "cohort/cluster/scheduler_resolvers.h"
#include "cohort/error.h"
#include "tests/golden/golden.h"

namespace cohort::clusters_test {
namespace {

using nlohmann::json;
using testing::check_golden;

// Returns the value of fn, or null where it throws: then TensorFlow has to have an error in that place.
template <typename Fn>
json value_or_error(const Fn& fn) {
  try {
    return fn();
  } catch (const Error&) {
    return {{"error", true}};
  }
}

std::string compare(const char* what, const json& actual, const json& wanted) {
  const bool both_fail =
      actual.is_object() && actual.contains("error") && wanted.is_object() && wanted.contains("error");
  if (both_fail || actual == wanted) return "";
  return c10::str(what, " is ", actual.dump(), ", wanted ", wanted.dump());
}

json text_or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}
json device_of(const std::optional<TaskId>& task) {
  return task ? task->device() : "";
}

// Everything that TensorFlow was asked about a TF_CONFIG.
json read_tf_config(const TFConfigResolver& resolver) {
  const ClusterSpec cluster = resolver.cluster_spec();
  const std::optional<TaskId> task = resolver.task();
  const TaskId self = task.value_or(TaskId{.type = ""});
  json all{{"cluster", json::parse(cluster.to_json())},           {"task_type", task ? json(task->type) : json()},
           {"task_id", task ? json(task->index) : json()},        {"rpc_layer", text_or_null(resolver.rpc_layer())},
           {"environment", text_or_null(resolver.environment())}, {"master", resolver.master()}};
  all["is_chief"] = value_or_error([&]() -> json { return task && is_chief(cluster, self); });
  all["worker_count"] = value_or_error([&]() -> json { return worker_count(cluster, self.type); });
  all["id_in_cluster"] = value_or_error([&]() -> json { return id_in_cluster(cluster, self); });
  all["collective_leader"] = value_or_error([&] { return device_of(collective_leader(cluster, self)); });
  all["coordination_leader"] = value_or_error([&] { return device_of(coordination_leader(cluster)); });
  return all;
}

TEST(Clusters, TFConfig) {
  check_golden("tf_config.json", [](const json& golden) -> std::string {
    const TFConfigResolver resolver({.variables = environment_of({{"TF_CONFIG", golden.at("TF_CONFIG")}})});
    const json actual = value_or_error([&] { return read_tf_config(resolver); });
    if (golden.contains("error") || actual.contains("error")) return compare("the TF_CONFIG", actual, golden);
    for (const auto& [key, value] : actual.items()) {
      const std::string found = compare(key.c_str(), value, golden.at(key));
      if (!found.empty()) return found;
    }
    return "";
  });
}

SlurmOptions slurm_options(const json& golden) {
  const json& given = golden.at("options");
  const auto number = [&](const char* key) {
    return given.contains(key) ? std::optional<int>(given.at(key)) : std::nullopt;
  };
  return {.jobs = given.value("jobs", std::map<std::string, int>()),
          .port_base = given.value("port_base", 8888),
          .gpus_per_node = number("gpus_per_node"),
          .gpus_per_task = number("gpus_per_task"),
          .tasks_per_node = number("tasks_per_node"),
          .variables = environment_of(golden.at("environment").get<std::map<std::string, std::string>>())};
}

json read_slurm(const SlurmResolver& resolver, bool with_gpus) {
  const TaskId task = resolver.task().value();
  json gpus;
  if (with_gpus) {
    std::string list;
    for (const int gpu : resolver.visible_gpus()) list += (list.empty() ? "" : ",") + std::to_string(gpu);
    gpus = list;
  }
  return {
      {"cluster", json::parse(resolver.cluster_spec().to_json())}, {"task", {task.type, task.index}}, {"gpus", gpus}};
}

// Returns the cluster of a step with these lists: the hosts and tasks that Slurm's texts stand for.
json expand(const std::string& hosts, const std::string& tasks_per_node, std::size_t tasks) {
  const SlurmResolver resolver({.variables = environment_of({{"SLURM_PROCID", "0"},
                                                             {"SLURM_STEP_NUM_TASKS", std::to_string(tasks)},
                                                             {"SLURM_STEP_NODELIST", hosts},
                                                             {"SLURM_STEP_TASKS_PER_NODE", tasks_per_node}})});
  return json::parse(resolver.cluster_spec().to_json()).at("worker");
}

TEST(Clusters, Slurm) {
  check_golden("slurm.json", [](const json& golden) -> std::string {
    if (golden.contains("hostlist")) {
      const bool wants_error = golden.contains("error");
      json wanted = wants_error ? golden : json::array();
      const std::size_t hosts = wants_error ? 1 : golden.at("hosts").size();
      for (std::size_t i = 0; i < hosts && !wants_error; ++i) {
        wanted.push_back(golden.at("hosts")[i].get<std::string>() + ":8888");
      }
      return compare("the list",
                     value_or_error([&] { return expand(golden.at("hostlist"), c10::str("1(x", hosts, ")"), hosts); }),
                     wanted);
    }
    if (golden.contains("tasks_per_node") && golden.contains("error")) {
      return compare("the list", value_or_error([&] { return expand("n[0-9]", golden.at("tasks_per_node"), 1); }),
                     golden);
    }
    if (golden.contains("tasks")) {
      json wanted = json::array();
      for (std::size_t node = 0; node < golden.at("tasks").size(); ++node) {
        for (int i = 0; i < golden.at("tasks")[node]; ++i) wanted.push_back(c10::str("n", node, ":", 8888 + i));
      }
      const std::string hosts = c10::str("n[0-", golden.at("tasks").size() - 1, "]");
      return compare("the list", expand(hosts, golden.at("tasks_per_node"), wanted.size()), wanted);
    }
    // TensorFlow sets CUDA_VISIBLE_DEVICES by itself unless told otherwise; here the program asks for the GPUs.
    const bool with_gpus = golden.at("options").value("auto_set_gpu", true);
    const json actual = value_or_error([&] { return read_slurm(SlurmResolver(slurm_options(golden)), with_gpus); });
    if (golden.contains("error") || actual.contains("error")) return compare("the step", actual, golden);
    for (const char* key : {"cluster", "task", "gpus"}) {
      const std::string found = compare(key, actual.at(key), golden.at(key));
      if (!found.empty()) return found;
    }
    return "";
  });
}

Partitioner partitioner_of(const json& golden) {
  const std::string name = golden.at("partitioner");
  const json& options = golden.at("options");
  if (name == "FixedShardsPartitioner") return FixedShardsPartitioner(options.at("num_shards"));
  if (name == "MinSizePartitioner") {
    MinSizePartitionerOptions given;
    given.min_shard_bytes = options.value("min_shard_bytes", given.min_shard_bytes);
    given.max_shards = options.value("max_shards", given.max_shards);
    return MinSizePartitioner(given);
  }
  if (name != "MaxSizePartitioner") throw std::invalid_argument(name + " is not known");
  return MaxSizePartitioner(
      {.max_shard_bytes = options.at("max_shard_bytes"), .max_shards = options.value("max_shards", 0)});
}

TEST(Clusters, Partitioners) {
  check_golden("partitioners.json", [](const json& golden) -> std::string {
    const json actual = value_or_error([&]() -> json {
      const Partitioner partitioner = partitioner_of(golden);
      if (!golden.contains("shape")) return true;
      const std::vector<int64_t> shape = golden.at("shape");
      const std::string dtype = golden.at("dtype");
      if (dtype != "float32" && dtype != "float64") throw std::invalid_argument(dtype + " is not known");
      return partitioner(shape, dtype == "float32" ? torch::kFloat : torch::kDouble);
    });
    const char* wanted = golden.contains("shape") ? "partitions" : "accepted";
    return compare("the answer", actual, golden.contains("error") ? golden : golden.at(wanted));
  });
}

}  // namespace
}  // namespace cohort::clusters_test
