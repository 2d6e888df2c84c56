#include "cohort/cluster/cluster_spec.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "cluster/beat_plan.h"
#include "cluster/coordination/client.h"
#include "cluster/coordination/server.h"
#include "cluster/own_host.h"
#include "rpc/security.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLastWord(1000);

TaskId leader_of(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options) {
  require_task(cluster, task);
  if (options.heartbeat_timeout < milliseconds(100)) {
    fail<InvalidArgument>("[cluster] heartbeat_timeout is ", to_text(options.heartbeat_timeout),
                          ", wanted 100 ms or more");
  }
  for (const auto& [job, tasks] : cluster.jobs()) require_no_gap(cluster, job);
  const std::optional<TaskId> leader = coordination_leader(cluster);
  if (leader && !cluster.address(*leader).empty()) return *leader;
  fail<InvalidArgument>("[cluster] the cluster ", cluster.to_json(), " has no address for its coordination leader");
}

}  // namespace

class Membership::Impl {
 public:
  Impl(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options)
      : cluster_(cluster),
        task_(task),
        options_(options),
        security_(job_security(options.security, options.allow_insecure)),
        leader_(leader_of(cluster, task, options)) {
    const std::string& address = cluster.address(leader_);
    if (task == leader_) {
      await_own_name(cluster, task, {.limit = options.start_timeout, .report_interval = options.report_interval});
      server_ = std::make_unique<CoordinationServer>(cluster, address, options.heartbeat_timeout, security_,
                                                     hosts_beside_loopback(cluster, task));
    }
    client_ = std::make_unique<CoordinationClient>(
        [this, address] { return server_ ? server_->local_channel() : open_channel(address, security_.security); },
        task, leader_.to_string() + " at " + address, options);
    infos_ = client_->enter(cluster.to_json());
    tasks_ = CoordinationState(cluster, options.heartbeat_timeout).tasks();
    if (infos_.size() != tasks_.size()) {
      cohort::fail<FailedPrecondition>("[cluster] the coordination leader ", leader_.to_string(), " tells of ",
                                       infos_.size(), " tasks, the cluster has ", tasks_.size());
    }
    beats_ = std::jthread([this](const std::stop_token& stop) { beat_until(stop); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    beats_.request_stop();
    if (beats_.joinable()) beats_.join();
    // An outage must not make a task lost that has left. A group that has failed needs nobody's farewell.
    client_->leave(failure() ? kLastWord : options_.heartbeat_timeout);
    if (server_) linger();
  }

  std::optional<std::string> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  std::optional<std::string> await_failure() const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, options_.heartbeat_timeout + options_.heartbeat_timeout / 4,
                      [&] { return failure_.has_value() || !left_.empty(); });
    return failure_ ? failure_ : departure();
  }

  void require_whole() const {
    const std::lock_guard lock(mutex_);
    const std::optional<std::string> reason = failure_ ? failure_ : departure();
    if (reason) cohort::fail<Unavailable>("[cluster] ", *reason);
  }

  std::vector<std::string> departed() const {
    const std::lock_guard lock(mutex_);
    return left_;
  }

  void require_well() const {
    if (const auto reason = failure()) cohort::fail<Unavailable>("[cluster] ", *reason);
  }

  void on_failure(std::function<void(const std::string&)> callback) {
    std::unique_lock lock(mutex_);
    if (!failure_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    const std::string reason = *failure_;
    lock.unlock();
    callback(reason);
  }

  void set_failure(const std::string& reason) {
    std::vector<std::function<void(const std::string&)>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return;
      failure_ = reason;
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    client_->give_up(reason);
    for (const auto& callback : callbacks) callback(reason);
  }

  // Waits at a barrier. Its name on the wire counts how often this task has passed it, so that it can be used again.
  void barrier(const std::string& name, milliseconds timeout) {
    const std::lock_guard one_at_a_time(barrier_mutex_);
    int& passed = passed_[name];
    client_->barrier(passed == 0 ? name : c10::str(name, " (", passed + 1, ")"), timeout);
    ++passed;
  }

  CoordinationClient& client() { return *client_; }
  const ClusterSpec& cluster() const { return cluster_; }
  const TaskId& task() const { return task_; }
  const std::vector<TaskId>& tasks() const { return tasks_; }
  const std::vector<std::string>& infos() const { return infos_; }

 private:
  void beat_until(const std::stop_token& stop) {
    const std::stop_callback end(stop, [&] { client_->stop_beating(); });
    BeatPlan leader(options_.heartbeat_timeout, Deadline::Clock::now());
    std::vector<std::string> left;
    while (!stop.stop_requested()) {
      const auto answer = client_->beat(left.size(), leader.next(Deadline::Clock::now()));
      if (stop.stop_requested()) return;
      if (answer && answer->kind() != coordination::Answer::DONE) return set_failure(answer->reason());
      if (answer) {
        leader.heard(Deadline::Clock::now());
        left.assign(answer->left().begin(), answer->left().end());
        note_departures(left);
        continue;
      }
      leader.failed();
      if (leader.lost(Deadline::Clock::now())) {
        return set_failure(c10::str("the coordination leader ", leader_.to_string(), " at ", cluster_.address(leader_),
                                    " is lost: nothing was heard of it for ", to_text(options_.heartbeat_timeout)));
      }
      std::this_thread::sleep_for(milliseconds(20));  // because a refused connection fails at once
    }
  }

  void note_departures(const std::vector<std::string>& left) {
    {
      const std::lock_guard lock(mutex_);
      left_ = left;
    }
    if (!left.empty()) changed_.notify_all();
  }

  // Returns why the group has ended, if it has. The caller holds mutex_.
  std::optional<std::string> departure() const {
    if (left_.empty()) return std::nullopt;
    return left_.front() + " has ended its program and takes part no more";
  }

  // Lets the leader serve until all members have left or are lost.
  void linger() const {
    const bool failed = server_->state().failure().has_value();
    const Deadline deadline(failed ? 2 * options_.heartbeat_timeout : options_.leave_timeout);
    while (!server_->state().deserted() && !deadline.passed()) std::this_thread::sleep_for(milliseconds(10));
  }

  ClusterSpec cluster_;
  TaskId task_;
  MembershipOptions options_;
  JobSecurity security_;
  TaskId leader_;
  std::unique_ptr<CoordinationServer> server_;
  std::unique_ptr<CoordinationClient> client_;
  std::vector<TaskId> tasks_;
  std::vector<std::string> infos_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<std::string> failure_;
  std::vector<std::string> left_;
  std::vector<std::function<void(const std::string&)>> callbacks_;
  std::mutex barrier_mutex_;
  std::map<std::string, int> passed_;
  std::jthread beats_;
};

Membership::Membership(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options)
    : impl_(std::make_unique<Impl>(cluster, task, options)) {}
Membership::~Membership() = default;

const ClusterSpec& Membership::cluster() const {
  return impl_->cluster();
}
const TaskId& Membership::task() const {
  return impl_->task();
}
const std::vector<TaskId>& Membership::tasks() const {
  return impl_->tasks();
}
const std::vector<std::string>& Membership::infos() const {
  return impl_->infos();
}
std::optional<std::string> Membership::failure() const {
  return impl_->failure();
}
std::optional<std::string> Membership::await_failure() const {
  return impl_->await_failure();
}
void Membership::on_failure(std::function<void(const std::string& reason)> callback) {
  impl_->on_failure(std::move(callback));
}
void Membership::fail(const std::string& reason) {
  impl_->client().fail(reason);
}
void Membership::require_whole() const {
  impl_->require_whole();
}
std::vector<std::string> Membership::departed() const {
  return impl_->departed();
}
void Membership::barrier(const std::string& name, std::chrono::milliseconds timeout) {
  impl_->require_well();
  impl_->barrier(name, timeout);
}
std::string Membership::put(const std::string& key, const std::string& value, bool if_absent) {
  impl_->require_well();
  return impl_->client().put(key, value, if_absent);
}
std::string Membership::get(const std::string& key, std::chrono::milliseconds timeout) const {
  impl_->require_well();
  return impl_->client().get(key, timeout);
}
std::optional<std::string> Membership::try_get(const std::string& key) const {
  impl_->require_well();
  return impl_->client().try_get(key);
}

}  // namespace cohort
