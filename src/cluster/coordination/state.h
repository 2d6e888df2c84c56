// CoordinationState: the membership of a cluster as its coordination leader keeps it. It uses no network and no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cluster/liveness.h"
#include "cohort/cluster/cluster_spec.h"

namespace cohort {

// A process of a task. A restarted process has another incarnation.
struct TaskProcess {
  TaskId task;
  uint64_t incarnation = 0;
};

// The end of a call. Refused and failed answers carry the reason.
struct CoordinationAnswer {
  enum class Kind { kDone, kPending, kRefused, kFailed, kOver };  // kOver: call again, for the next group
  Kind kind = Kind::kDone;
  std::string reason;
  std::vector<std::string> missing;  // the tasks that are awaited, with kPending
  std::vector<std::string> left;     // answer of beat: the members that have left
  std::vector<std::string> infos;    // answer of a complete registration, in the order of tasks()
  std::string value;                 // answer of put and get
};

// The members of one group. A reply is called exactly once, by the call itself, by another call or by tick(), while no
// lock is held. Thread-safe.
class CoordinationState {
 public:
  using Time = Liveness::Time;
  using Reply = std::function<void(const CoordinationAnswer&)>;

  // Every chief, worker and ps of the cluster is a member. The group fails when a registered member is not heard of for
  // `heartbeat_timeout`.
  CoordinationState(ClusterSpec cluster, std::chrono::milliseconds heartbeat_timeout);

  const std::vector<TaskId>& tasks() const { return tasks_; }

  // Registers a process. A second process for a place that is taken is refused once the first has shown that it is
  // alive, and enters the next group when the first is lost.
  void register_task(const TaskProcess& who, const std::string& cluster, const std::string& process,
                     const std::string& info, Time now, Time until, Reply reply);
  // Waits for a failure, or until another number of members than `known_left` have left.
  void beat(const TaskProcess& who, std::size_t known_left, Time now, Time until, Reply reply);
  void barrier(const TaskProcess& who, const std::string& name, Time now, Time until, Reply reply);
  void fail(const TaskProcess& who, const std::string& reason);
  void leave(const TaskProcess& who);
  // Keeps a value. It is refused if there would be too many, or too many bytes of them.
  void put(const TaskProcess& who, const std::string& key, const std::string& value, bool if_absent, Reply reply);
  void get(const TaskProcess& who, const std::string& key, Time until, Reply reply);

  // Ends waits whose time has passed and notices silent members. It has to be called every few milliseconds.
  void tick(Time now);

  // Ends every wait. No other call may follow.
  void shut_down();

  std::optional<std::string> failure() const;
  // Returns whether every member has left or is lost, so that the leader may leave.
  bool deserted() const;

 private:
  struct Member {
    Liveness alive;  // it is entered once the member has registered
    bool left = false;
    bool lost = false;
    std::string process = "";
    std::string info = "";
  };
  // A waiting call. `answer` returns how the call ends, or nothing while it has to wait.
  struct Waiter {
    Time until;
    std::function<std::optional<CoordinationAnswer>()> answer;
    std::function<CoordinationAnswer()> on_timeout;
    bool ends_with_failure = true;
    Reply reply;
  };
  using Replies = std::vector<std::pair<Reply, CoordinationAnswer>>;

  Member* find(const TaskId& task);
  // Returns the member that the process is, or null if it is none.
  Member* find(const TaskProcess& who);
  // Returns why the process is not the member that it claims to be.
  CoordinationAnswer refuse_stranger(const TaskProcess& who);
  std::optional<CoordinationAnswer> refuse(const TaskProcess& who, Time now);
  std::optional<CoordinationAnswer> refuse_registration(const TaskProcess& who, const std::string& cluster,
                                                        const std::string& process);
  Waiter contest(const TaskProcess& who, const std::string& process, Time now);
  std::vector<std::string> not_registered() const;
  std::vector<std::string> gone() const;
  std::vector<std::string> not_at(const std::string& barrier) const;
  CoordinationAnswer registration() const;
  void set_failure(const std::string& reason);
  void wait(Waiter waiter);
  Replies settle(std::optional<Time> now);
  static void send(const Replies& replies);

  const ClusterSpec cluster_;
  const std::chrono::milliseconds heartbeat_timeout_;
  const std::vector<TaskId> tasks_;
  mutable std::mutex mutex_;
  std::map<std::string, Member> members_;  // the key is TaskId::to_string()
  std::map<std::string, std::set<std::string>> barriers_;
  std::map<std::string, std::string> values_;
  std::size_t value_bytes_ = 0;  // the bytes of the keys and values
  std::vector<Waiter> waiters_;
  std::optional<std::string> failure_;
  bool down_ = false;
};

}  // namespace cohort
