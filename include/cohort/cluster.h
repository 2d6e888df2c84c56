// Clusters: which tasks a distributed program consists of, at which addresses, and what part each plays.
//
// Names and rules are TensorFlow's: the jobs chief, worker, ps and evaluator; the chief, or worker 0 where there is no
// chief, owns checkpoints and logs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort {

// One process of a cluster.
struct TaskId {
  std::string type = "worker";  // the job: chief, worker, ps, evaluator
  int index = 0;                // within the job

  std::string to_string() const;  // "worker 1"
  std::string device() const;     // "/job:worker/replica:0/task:1"
  bool operator==(const TaskId&) const = default;
};

// Jobs, their tasks and the tasks' addresses ("host:port"). A value. An address may be empty: not known before the task
// registers (torchrun and MPI tell a process no addresses but the first one's).
class ClusterSpec {
 public:
  using Tasks = std::map<int, std::string>;  // by index; indices may have gaps

  ClusterSpec() = default;
  // InvalidArgument: an unknown job, a job without tasks, two chiefs or evaluators, a negative index, an address that
  // is not "host:port", an address that two tasks share.
  explicit ClusterSpec(std::map<std::string, Tasks> jobs);
  explicit ClusterSpec(const std::map<std::string, std::vector<std::string>>& jobs);

  // {"worker": ["a:1", "b:1"], "ps": {"0": "c:1"}}. Errors name `source` and the key.
  static ClusterSpec from_json(const std::string& text, const std::string& source = "cluster");
  std::string to_json() const;  // lists where indices have no gaps

  // Returns whether there is no task at all.
  bool empty() const { return jobs_.empty(); }
  // Returns the jobs with their tasks.
  const std::map<std::string, Tasks>& jobs() const { return jobs_; }
  // Returns whether there is a job of that name.
  bool has_job(const std::string& job) const { return jobs_.contains(job); }
  int num_tasks(const std::string& job) const;  // 0 for a job that is not there
  // Returns whether there is this task.
  bool has(const TaskId& task) const;
  // NotFound names the tasks that there are.
  const std::string& address(const TaskId& task) const;

  bool operator==(const ClusterSpec&) const = default;

 private:
  std::map<std::string, Tasks> jobs_;
};

// The roles of reference "multi_worker_util". All throw InvalidArgument for a task that the cluster does not have; an
// evaluator may be missing from the cluster.
void require_task(const ClusterSpec& cluster, const TaskId& task);
// Chief and evaluator are; worker 0 where there is no chief job.
bool is_chief(const ClusterSpec& cluster, const TaskId& task);
// How many work together with this task: chief and workers, or the evaluators.
int worker_count(const ClusterSpec& cluster, const std::string& task_type);
// Rank among them: chief 0, worker i + number of chiefs, evaluator i. InvalidArgument for a ps.
int id_in_cluster(const ClusterSpec& cluster, const TaskId& task);
// The task of this rank among chief and workers.
TaskId task_of_rank(const ClusterSpec& cluster, int rank);
// Who leads the collectives: the chief, else worker 0; none without a cluster and for an evaluator.
std::optional<TaskId> collective_leader(const ClusterSpec& cluster, const TaskId& task);
// Who holds the membership: ps 0, else the chief, else worker 0; none without a cluster.
std::optional<TaskId> coordination_leader(const ClusterSpec& cluster);

}  // namespace cohort
