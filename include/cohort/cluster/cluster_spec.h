// Clusters: which tasks a distributed program consists of, at which addresses, and what part each plays.
//
// Names and rules are TensorFlow's: the jobs chief, worker, ps and evaluator; the chief, or worker 0 where there is no
// chief, owns checkpoints and logs.
//
// Membership: the tasks of a cluster finding each other, and noticing when one is gone. One task, the coordination
// leader (ps 0, else the chief, else worker 0), serves on its address of the cluster; all others connect to it and to
// nobody else. Every task tells it that it is alive; when one is silent for too long, all others hear its name at once.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/cluster/security.h"

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
  using Tasks = std::map<int, std::string>;  // addresses by index; indices may have gaps

  ClusterSpec() = default;
  // InvalidArgument: an unknown job, a job without tasks, a negative index, an address that is not "host:port", an
  // address that two tasks share.
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

// The roles of reference "multi_worker_util". All throw InvalidArgument for a task that the cluster does not have (an
// evaluator may be missing from the cluster), and for a cluster with several chiefs or evaluators.
void require_task(const ClusterSpec& cluster, const TaskId& task);
// Returns whether the task is a chief: chief and evaluator are; worker 0 where there is no chief job.
bool is_chief(const ClusterSpec& cluster, const TaskId& task);
// Returns how many tasks work together with this one: chief and workers, or the evaluators.
int worker_count(const ClusterSpec& cluster, const std::string& task_type);
// Returns the rank among them: chief 0, worker i + number of chiefs, evaluator i. InvalidArgument for a ps.
int id_in_cluster(const ClusterSpec& cluster, const TaskId& task);
// Returns the task of this rank among chief and workers.
TaskId task_of_rank(const ClusterSpec& cluster, int rank);
// Returns the task that leads the collectives: the chief, else worker 0; none without a cluster and for an evaluator.
std::optional<TaskId> collective_leader(const ClusterSpec& cluster, const TaskId& task);
// Returns the task that holds the membership: ps 0, else the chief, else worker 0; none without a cluster.
std::optional<TaskId> coordination_leader(const ClusterSpec& cluster);

// The time limits by which the tasks of a cluster find each other, and notice when one is gone.
struct MembershipOptions {
  // The longest wait for all tasks at the start.
  std::chrono::milliseconds start_timeout = std::chrono::minutes(10);
  // The interval in which waiting tasks report who is missing.
  std::chrono::milliseconds report_interval = std::chrono::seconds(5);
  // The silence after which a task is lost; at least 100 ms.
  std::chrono::milliseconds heartbeat_timeout = std::chrono::seconds(5);
  // The longest wait of the leader at the end for tasks that have not left.
  std::chrono::milliseconds leave_timeout = std::chrono::minutes(1);
  // A text about this task for the other tasks (Membership::infos()).
  std::string info = "";
  // Who may speak to the tasks, over the membership's calls and over the ring.
  SecurityOptions security = {};
  bool allow_insecure = false;  // lets tasks without security listen where other machines reach them
  // What keeps the membership in place of the leader: "etcd://host:port,host:port" (docs/wings/etcd.md). Empty: what
  // COHORT_COORDINATION says, else the leader.
  std::string coordination = "";
};

// Thread-safe. Once the group has failed, every call throws Unavailable with the first reason; the program has to be
// started again.
class Membership {
 public:
  // Enters the group and returns when it is complete. DeadlineExceeded names who is missing; FailedPrecondition:
  // another process is this task already, or was started with another cluster; Unavailable: the leader's address cannot
  // be bound.
  Membership(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options = {});
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;
  // Leaves. The leader stays until the others have left, for leave_timeout at most.
  ~Membership();

  // Returns the cluster that the group is made of.
  const ClusterSpec& cluster() const;
  // Returns this process's task.
  const TaskId& task() const;
  // Returns all members (chief, workers, ps), in that order, and what each told of itself.
  const std::vector<TaskId>& tasks() const;
  // Returns what each member told of itself (MembershipOptions::info), in the order of tasks().
  const std::vector<std::string>& infos() const;

  // Returns the reason why the group has failed; nothing while it is well.
  std::optional<std::string> failure() const;
  // Returns the failure that explains an error which the caller met, such as a broken connection: waits for the
  // leader's verdict for a little more than heartbeat_timeout.
  std::optional<std::string> await_failure() const;
  // Calls back, once, when the group fails (now, if it has), from another thread. Call before sharing this object.
  void on_failure(std::function<void(const std::string& reason)> callback);
  // Ends the group for all, with this reason; nothing when it has failed before.
  void fail(const std::string& reason);
  // Throws Unavailable when the group has failed or one of its tasks has left.
  void require_whole() const;
  // Returns the names of the tasks that have left, such as "worker 1".
  std::vector<std::string> departed() const;

  // Returns when every task that has not left has called it with this name, as often as this task. DeadlineExceeded
  // names the missing.
  void barrier(const std::string& name, std::chrono::milliseconds timeout);

  // Keeps a value that all tasks see, of 4 MiB at most (InvalidArgument). put returns what the key has now, which is
  // another task's value when `if_absent`; get waits for the key (DeadlineExceeded).
  std::string put(const std::string& key, const std::string& value, bool if_absent = false);
  // Waits for the key and returns its value.
  std::string get(const std::string& key, std::chrono::milliseconds timeout) const;
  // Returns the value that the key has now, or nothing.
  std::optional<std::string> try_get(const std::string& key) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort
