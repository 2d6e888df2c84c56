#include "cohort/cluster/cluster_spec.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/deadline.h"
#include "base/extension.h"
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

// Returns the end that a wing opens, or null if the leader keeps the membership.
std::unique_ptr<CoordinationEnd> open_end(const ClusterSpec& cluster, const TaskId& task, MembershipOptions options) {
  const char* const variable = std::getenv("COHORT_COORDINATION");
  if (options.coordination.empty() && variable != nullptr) options.coordination = variable;
  if (options.coordination.empty()) return nullptr;
  for (const CoordinationRow& row : extensions<CoordinationRow>()) {
    if (options.coordination.starts_with(row.scheme)) return row.open(cluster, task, options);
  }
  const std::string scheme = options.coordination.substr(0, options.coordination.find(':'));
  fail_without(scheme, "[cluster] the coordination begins with ", scheme, ":");
}

}  // namespace

class Membership::Impl {
 public:
  Impl(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options)
      : cluster_(cluster),
        task_(task),
        options_(options),
        security_(job_security(options.security, options.allow_insecure)) {
    const TaskId leader = leader_of(cluster, task, options);
    end_ = open_end(cluster, task, options);
    if (!end_) end_ = open_service(leader);
    infos_ = end_->enter(cluster.to_json());
    tasks_ = CoordinationState(cluster, options.heartbeat_timeout).tasks();
    if (infos_.size() != tasks_.size()) {
      cohort::fail<FailedPrecondition>("[cluster] ", end_->name(), " tells of ", infos_.size(),
                                       " tasks, the cluster has ", tasks_.size());
    }
    beats_ = std::jthread([this](const std::stop_token& stop) { beat_until(stop); });
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    beats_.request_stop();
    if (beats_.joinable()) beats_.join();
    // An outage must not make a task lost that has left. A group that has failed needs nobody's farewell.
    end_->leave(failure() ? kLastWord : options_.heartbeat_timeout);
    if (server_) linger();
  }

  std::optional<std::string> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // Returns why the group has ended, if it has. The caller holds mutex_.
  std::optional<std::string> ended() const {
    if (failure_ || left_.empty()) return failure_;
    return left_.front() + " has ended its program and takes part no more";
  }

  // Returns the end, while the group is well.
  CoordinationEnd& well() const {
    if (const auto reason = failure()) cohort::fail<Unavailable>("[cluster] ", *reason);
    return *end_;
  }

  const ClusterSpec cluster_;
  const TaskId task_;
  const MembershipOptions options_;
  const JobSecurity security_;
  std::unique_ptr<CoordinationServer> server_;  // the leader has it
  std::unique_ptr<CoordinationEnd> end_;
  std::vector<TaskId> tasks_;
  std::vector<std::string> infos_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::optional<std::string> failure_;
  std::vector<std::string> left_;
  std::vector<std::function<void(const std::string&)>> callbacks_;
  std::mutex barrier_mutex_;
  std::map<std::string, int> passed_;

 private:
  std::unique_ptr<CoordinationEnd> open_service(const TaskId& leader) {
    const std::string& address = cluster_.address(leader);
    if (task_ == leader) {
      await_own_name(cluster_, task_, {.limit = options_.start_timeout, .report_interval = options_.report_interval});
      server_ = std::make_unique<CoordinationServer>(cluster_, address, options_.heartbeat_timeout, security_,
                                                     hosts_beside_loopback(cluster_, task_));
    }
    return std::make_unique<CoordinationClient>(
        [this, address] { return server_ ? server_->local_channel() : open_channel(address, security_.security); },
        task_, leader.to_string() + " at " + address, options_);
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
    end_->give_up(reason);
    for (const auto& callback : callbacks) callback(reason);
  }

  void beat_until(const std::stop_token& stop) {
    const std::stop_callback end(stop, [&] { end_->stop_beating(); });
    BeatPlan plan(options_.heartbeat_timeout, Deadline::Clock::now());
    std::size_t left = 0;
    while (!stop.stop_requested()) {
      const auto answer = end_->beat(left, plan.next(Deadline::Clock::now()));
      if (stop.stop_requested()) return;
      if (answer && answer->kind() != coordination::Answer::DONE) return set_failure(answer->reason());
      if (answer) {
        plan.heard(Deadline::Clock::now());
        left = static_cast<std::size_t>(answer->left_size());
        const std::lock_guard lock(mutex_);
        left_.assign(answer->left().begin(), answer->left().end());
        if (left > 0) changed_.notify_all();
        continue;
      }
      plan.failed();
      if (plan.lost(Deadline::Clock::now())) {
        return set_failure(
            c10::str(end_->name(), " is lost: nothing was heard of it for ", to_text(options_.heartbeat_timeout)));
      }
      std::this_thread::sleep_for(milliseconds(20));  // because a refused connection fails at once
    }
  }

  // Lets the leader serve until all members have left or are lost.
  void linger() const {
    const bool failed = server_->state().failure().has_value();
    const Deadline deadline(failed ? 2 * options_.heartbeat_timeout : options_.leave_timeout);
    while (!server_->state().deserted() && !deadline.passed()) std::this_thread::sleep_for(milliseconds(10));
  }

  std::jthread beats_;
};

Membership::Membership(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options)
    : impl_(std::make_unique<Impl>(cluster, task, options)) {}
Membership::~Membership() = default;

const ClusterSpec& Membership::cluster() const {
  return impl_->cluster_;
}
const TaskId& Membership::task() const {
  return impl_->task_;
}
const std::vector<TaskId>& Membership::tasks() const {
  return impl_->tasks_;
}
const std::vector<std::string>& Membership::infos() const {
  return impl_->infos_;
}
std::optional<std::string> Membership::failure() const {
  return impl_->failure();
}
std::optional<std::string> Membership::await_failure() const {
  std::unique_lock lock(impl_->mutex_);
  const milliseconds patience = impl_->options_.heartbeat_timeout;
  impl_->changed_.wait_for(lock, patience + patience / 4, [&] { return impl_->ended().has_value(); });
  return impl_->ended();
}
void Membership::on_failure(std::function<void(const std::string& reason)> callback) {
  std::unique_lock lock(impl_->mutex_);
  if (!impl_->failure_) {
    impl_->callbacks_.push_back(std::move(callback));
    return;
  }
  const std::string reason = *impl_->failure_;
  lock.unlock();
  callback(reason);
}
void Membership::fail(const std::string& reason) {
  impl_->end_->fail(reason);
}
void Membership::require_whole() const {
  const std::lock_guard lock(impl_->mutex_);
  if (const auto reason = impl_->ended()) cohort::fail<Unavailable>("[cluster] ", *reason);
}
std::vector<std::string> Membership::departed() const {
  const std::lock_guard lock(impl_->mutex_);
  return impl_->left_;
}
// The name of a barrier on the wire counts how often this task has passed it, so that it can be used again.
void Membership::barrier(const std::string& name, std::chrono::milliseconds timeout) {
  CoordinationEnd& end = impl_->well();
  const std::lock_guard one_at_a_time(impl_->barrier_mutex_);
  int& passed = impl_->passed_[name];
  end.barrier(passed == 0 ? name : c10::str(name, " (", passed + 1, ")"), timeout);
  ++passed;
}
std::string Membership::put(const std::string& key, const std::string& value, bool if_absent) {
  return impl_->well().put(key, value, if_absent);
}
std::string Membership::get(const std::string& key, std::chrono::milliseconds timeout) const {
  return impl_->well().get(key, timeout);
}
std::optional<std::string> Membership::try_get(const std::string& key) const {
  return impl_->well().try_get(key);
}

}  // namespace cohort
