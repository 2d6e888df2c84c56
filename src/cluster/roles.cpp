// The roles of tasks, with the rules of TensorFlow's multi_worker_util.
#include "base/fail.h"
#include "cohort/cluster/cluster_spec.h"

namespace cohort {

namespace {

bool takes_part(const std::string& type) {
  return type == "chief" || type == "worker";
}

// Throws if the cluster has several chiefs or evaluators. TensorFlow, too, accepts such a cluster until roles are asked
// for.
void require_roles(const ClusterSpec& cluster) {
  for (const char* job : {"chief", "evaluator"}) {
    if (cluster.num_tasks(job) <= 1) continue;
    fail<InvalidArgument>("[cluster] job ", job, " has ", cluster.num_tasks(job), " tasks, at most 1 is allowed");
  }
}

}  // namespace

void require_task(const ClusterSpec& cluster, const TaskId& task) {
  require_roles(cluster);
  if (task.type == "evaluator" && !cluster.has_job("evaluator") && task.index == 0) return;
  if (cluster.has(task)) return;
  if (!cluster.has_job(task.type)) {
    fail<InvalidArgument>("[cluster] the task type \"", task.type, "\" is not among the jobs of ", cluster.to_json());
  }
  fail<InvalidArgument>("[cluster] the task index of ", task.to_string(), " is not among the ",
                        cluster.num_tasks(task.type), " of job ", task.type, " in ", cluster.to_json());
}

bool is_chief(const ClusterSpec& cluster, const TaskId& task) {
  require_task(cluster, task);
  if (task.type == "chief" || task.type == "evaluator") return true;
  return task.type == "worker" && !cluster.has_job("chief") && task.index == 0;
}

int worker_count(const ClusterSpec& cluster, const std::string& task_type) {
  require_roles(cluster);
  if (task_type == "evaluator") return std::max(1, cluster.num_tasks("evaluator"));
  if (takes_part(task_type)) return cluster.num_tasks("chief") + cluster.num_tasks("worker");
  fail<InvalidArgument>("[cluster] worker count: the task type is \"", task_type,
                        "\", wanted chief, worker or evaluator");
}

int id_in_cluster(const ClusterSpec& cluster, const TaskId& task) {
  require_task(cluster, task);
  if (task.type == "chief") return 0;
  if (task.type == "evaluator") return task.index;
  if (task.type == "worker") return task.index + cluster.num_tasks("chief");
  fail<InvalidArgument>("[cluster] ", task.to_string(), " has no id among the workers");
}

TaskId task_of_rank(const ClusterSpec& cluster, int rank) {
  const int chiefs = cluster.num_tasks("chief");
  TaskId task = rank < chiefs ? TaskId{"chief", rank} : TaskId{"worker", rank - chiefs};
  require_task(cluster, task);
  return task;
}

std::optional<TaskId> collective_leader(const ClusterSpec& cluster, const TaskId& task) {
  if (cluster.empty() || task.type == "evaluator") return std::nullopt;
  require_task(cluster, task);
  return cluster.has_job("chief") ? TaskId{"chief", 0} : TaskId{"worker", 0};
}

std::optional<TaskId> coordination_leader(const ClusterSpec& cluster) {
  for (const char* job : {"ps", "chief", "worker"}) {
    if (cluster.has_job(job)) return TaskId{job, 0};
  }
  return std::nullopt;
}

}  // namespace cohort
