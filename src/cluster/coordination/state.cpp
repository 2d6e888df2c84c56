#include "cluster/coordination/state.h"

#include <algorithm>

#include "base/deadline.h"
#include "base/fail.h"

namespace cohort {

namespace {

using Kind = CoordinationAnswer::Kind;

// The most values that are kept, and the most bytes of them and their keys: no task can use up the leader's memory.
constexpr std::size_t kMostValues = 1'000'000;
constexpr std::size_t kMostValueBytes = std::size_t{256} << 20;
constexpr std::size_t kShownKey = 100;  // characters of a key in a message

std::vector<TaskId> members_of(const ClusterSpec& cluster) {
  std::vector<TaskId> tasks;
  for (const char* job : {"chief", "worker", "ps"}) {
    if (!cluster.has_job(job)) continue;
    for (const auto& [index, address] : cluster.jobs().at(job)) tasks.push_back({job, index});
  }
  return tasks;
}

CoordinationAnswer refusal(const std::string& reason) {
  return {.kind = Kind::kRefused, .reason = reason};
}

}  // namespace

CoordinationState::CoordinationState(ClusterSpec cluster, std::chrono::milliseconds heartbeat_timeout)
    : cluster_(std::move(cluster)), heartbeat_timeout_(heartbeat_timeout), tasks_(members_of(cluster_)) {
  for (const TaskId& task : tasks_) members_.emplace(task.to_string(), Member{.alive = Liveness(heartbeat_timeout)});
}

CoordinationState::Member* CoordinationState::find(const TaskId& task) {
  const auto member = members_.find(task.to_string());
  return member == members_.end() ? nullptr : &member->second;
}

CoordinationState::Member* CoordinationState::find(const TaskProcess& who) {
  Member* member = find(who.task);
  return member != nullptr && member->alive.is(who.incarnation) ? member : nullptr;
}

CoordinationAnswer CoordinationState::refuse_stranger(const TaskProcess& who) {
  const Member* member = find(who.task);
  const std::string name = who.task.to_string();
  if (member == nullptr || !member->alive.entered()) return refusal(name + " is not registered");
  return refusal("another process is registered as " + name + ": " + member->process);
}

// Returns the refusal of a call that is not in order, or nothing. Notes that the member is alive.
std::optional<CoordinationAnswer> CoordinationState::refuse(const TaskProcess& who, Time now) {
  Member* member = find(who);
  if (member == nullptr) return refuse_stranger(who);
  member->alive.hear(now);
  if (failure_) return CoordinationAnswer{.kind = Kind::kFailed, .reason = *failure_};
  return std::nullopt;
}

std::optional<CoordinationAnswer> CoordinationState::refuse_registration(const TaskProcess& who,
                                                                         const std::string& cluster,
                                                                         const std::string& process) {
  const std::string name = who.task.to_string();
  Member* member = find(who.task);
  const bool is_new = member != nullptr && member->alive.entered() && !member->alive.is(who.incarnation);
  // A registration after the end of a group belongs to the next group, whose leader is not there yet.
  if (is_new && (failure_ || member->left)) {
    return CoordinationAnswer{.kind = Kind::kOver, .reason = "the end of the group before"};
  }
  if (failure_) return CoordinationAnswer{.kind = Kind::kFailed, .reason = *failure_};
  if (cluster != cluster_.to_json()) {
    return refusal(name + " (" + process + ") was started with another cluster: it has " + cluster +
                   ", the coordination leader has " + cluster_.to_json());
  }
  if (member == nullptr) return refusal("there is no " + name + " in the cluster " + cluster_.to_json());
  return std::nullopt;
}

// Handles a second process for a place that is taken: it waits until the first process is heard of again or is lost.
CoordinationState::Waiter CoordinationState::contest(const TaskProcess& who, const std::string& process, Time now) {
  const std::string name = who.task.to_string();
  members_.at(name).alive.contest(who.incarnation, now);
  return {.answer = [this, name, process]() -> std::optional<CoordinationAnswer> {
            if (failure_) return CoordinationAnswer{.kind = Kind::kOver, .reason = "the end of the group before"};
            const Member& first = members_.at(name);
            if (!first.alive.resists()) return std::nullopt;
            return refusal("the place of " + name + " is taken by " + first.process +
                           ", which is alive; this process is " + process);
          },
          .on_timeout =
              [this, name] {
                return CoordinationAnswer{
                    .kind = Kind::kPending,
                    .missing = {"the place of " + name + ", which " + members_.at(name).process + " has"}};
              },
          .ends_with_failure = false};
}

std::vector<std::string> CoordinationState::not_registered() const {
  std::vector<std::string> missing;
  for (const TaskId& task : tasks_) {
    if (!members_.at(task.to_string()).alive.entered()) missing.push_back(task.to_string());
  }
  return missing;
}

std::vector<std::string> CoordinationState::gone() const {
  std::vector<std::string> names;
  for (const TaskId& task : tasks_) {
    if (members_.at(task.to_string()).left) names.push_back(task.to_string());
  }
  return names;
}

std::vector<std::string> CoordinationState::not_at(const std::string& barrier) const {
  std::vector<std::string> missing;
  const std::set<std::string>& there = barriers_.at(barrier);
  for (const TaskId& task : tasks_) {
    const std::string name = task.to_string();
    if (!members_.at(name).left && !there.contains(name)) missing.push_back(name);
  }
  return missing;
}

CoordinationAnswer CoordinationState::registration() const {
  CoordinationAnswer answer;
  for (const TaskId& task : tasks_) answer.infos.push_back(members_.at(task.to_string()).info);
  return answer;
}

void CoordinationState::register_task(const TaskProcess& who, const std::string& cluster, const std::string& process,
                                      const std::string& info, Time now, Time until, Reply reply) {
  std::unique_lock lock(mutex_);
  if (auto refused = refuse_registration(who, cluster, process)) {
    const Replies others = settle(std::nullopt);
    lock.unlock();
    send(others);
    return reply(*refused);
  }
  Member& member = *find(who.task);
  Waiter waiter;
  if (member.alive.entered() && !member.alive.is(who.incarnation)) {
    waiter = contest(who, process, now);
  } else {
    member.alive.enter(who.incarnation, now);
    member.process = process;
    member.info = info;
    waiter.answer = [this] { return not_registered().empty() ? std::optional(registration()) : std::nullopt; };
    waiter.on_timeout = [this] { return CoordinationAnswer{.kind = Kind::kPending, .missing = not_registered()}; };
  }
  waiter.until = until;
  waiter.reply = std::move(reply);
  wait(std::move(waiter));
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
}

void CoordinationState::beat(const TaskProcess& who, std::size_t known_left, Time now, Time until, Reply reply) {
  std::unique_lock lock(mutex_);
  if (auto refused = refuse(who, now)) {
    lock.unlock();
    return reply(*refused);
  }
  const auto report = [this] { return CoordinationAnswer{.left = gone()}; };
  wait({.until = until,
        .answer = [this, known_left,
                   report] { return gone().size() == known_left ? std::nullopt : std::optional(report()); },
        .on_timeout = report,
        .reply = std::move(reply)});
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
}

void CoordinationState::barrier(const TaskProcess& who, const std::string& name, Time now, Time until, Reply reply) {
  std::unique_lock lock(mutex_);
  if (auto refused = refuse(who, now)) {
    lock.unlock();
    return reply(*refused);
  }
  barriers_[name].insert(who.task.to_string());
  wait({.until = until,
        .answer = [this, name]() -> std::optional<CoordinationAnswer> {
          if (!not_at(name).empty()) return std::nullopt;
          return CoordinationAnswer{};
        },
        .on_timeout = [this, name] { return CoordinationAnswer{.kind = Kind::kPending, .missing = not_at(name)}; },
        .reply = std::move(reply)});
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
}

void CoordinationState::fail(const TaskProcess& who, const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (find(who) == nullptr) return;
  set_failure(reason);
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
}

void CoordinationState::leave(const TaskProcess& who) {
  std::unique_lock lock(mutex_);
  Member* member = find(who);
  if (member == nullptr) return;
  member->left = true;
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
}

void CoordinationState::put(const TaskProcess& who, const std::string& key, const std::string& value, bool if_absent,
                            Reply reply) {
  std::unique_lock lock(mutex_);
  if (find(who) == nullptr) {
    const CoordinationAnswer refused = refuse_stranger(who);
    lock.unlock();
    return reply(refused);
  }
  const auto known = values_.find(key);
  const bool is_new = known == values_.end();
  if (is_new || !if_absent) {
    const std::size_t before = is_new ? 0 : key.size() + known->second.size();
    const std::size_t bytes = value_bytes_ - before + key.size() + value.size();
    if (bytes > kMostValueBytes || (is_new && values_.size() >= kMostValues)) {
      lock.unlock();
      return reply(refusal(c10::str("there are ", values_.size(), " values, and with ", key.substr(0, kShownKey),
                                    " of ", value.size(), " bytes they would be more than ", kMostValues,
                                    " or have more than ", kMostValueBytes, " bytes")));
    }
    value_bytes_ = bytes;
    values_[key] = value;
  }
  const CoordinationAnswer answer{.value = values_[key]};
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
  reply(answer);
}

void CoordinationState::get(const TaskProcess& who, const std::string& key, Time until, Reply reply) {
  std::unique_lock lock(mutex_);
  if (find(who) == nullptr) {
    const CoordinationAnswer refused = refuse_stranger(who);
    lock.unlock();
    return reply(refused);
  }
  wait({.until = until,
        .answer = [this, key]() -> std::optional<CoordinationAnswer> {
          const auto value = values_.find(key);
          if (value == values_.end()) return std::nullopt;
          return CoordinationAnswer{.value = value->second};
        },
        .on_timeout = [key] { return CoordinationAnswer{.kind = Kind::kPending, .missing = {"the key " + key}}; },
        .ends_with_failure = false,
        .reply = std::move(reply)});
  const Replies replies = settle(std::nullopt);
  lock.unlock();
  send(replies);
}

void CoordinationState::tick(Time now) {
  std::unique_lock lock(mutex_);
  for (auto& [name, member] : members_) {
    if (!member.alive.entered() || member.left || member.lost || !member.alive.lost(now)) continue;
    member.lost = true;
    set_failure(name + " (" + member.process + ") is lost: nothing was heard of it for " + to_text(heartbeat_timeout_));
  }
  const Replies replies = settle(now);
  lock.unlock();
  send(replies);
}

void CoordinationState::shut_down() {
  std::unique_lock lock(mutex_);
  down_ = true;
  set_failure("the coordination leader has ended");
  Replies replies = settle(std::nullopt);  // the processes that wait for the next group go there
  for (Waiter& waiter : waiters_) waiter.ends_with_failure = true;
  for (auto& last : settle(std::nullopt)) replies.push_back(std::move(last));
  lock.unlock();
  send(replies);
}

std::optional<std::string> CoordinationState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool CoordinationState::deserted() const {
  const std::lock_guard lock(mutex_);
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member.second.left || member.second.lost; });
}

// Notes why the group has failed. The first reason stands, because later ones are its consequences.
void CoordinationState::set_failure(const std::string& reason) {
  if (!failure_) failure_ = reason;
}

void CoordinationState::wait(Waiter waiter) {
  if (down_) waiter.ends_with_failure = true;
  waiters_.push_back(std::move(waiter));
}

// Removes the calls that can end and returns them with their answers. With `now`, calls whose time has passed end too.
CoordinationState::Replies CoordinationState::settle(std::optional<Time> now) {
  Replies replies;
  std::erase_if(waiters_, [&](Waiter& waiter) {
    std::optional<CoordinationAnswer> answer;
    if (failure_ && waiter.ends_with_failure) {
      answer = CoordinationAnswer{.kind = Kind::kFailed, .reason = *failure_};
    } else {
      answer = waiter.answer();
    }
    if (!answer && now && *now >= waiter.until) answer = waiter.on_timeout();
    if (!answer) return false;
    replies.emplace_back(std::move(waiter.reply), std::move(*answer));
    return true;
  });
  return replies;
}

void CoordinationState::send(const Replies& replies) {
  for (const auto& [reply, answer] : replies) reply(answer);
}

}  // namespace cohort
