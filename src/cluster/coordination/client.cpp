#include "cluster/coordination/client.h"

#include <algorithm>
#include <thread>

#include "base/draw.h"
#include "base/fail.h"
#include "base/wait_reporting.h"
#include "cluster/own_host.h"
#include "rpc/calls.h"
#include "rpc/status.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
namespace proto = coordination;

// The longest time that the leader may hold a call that waits, and the longest time of any call.
constexpr milliseconds kSlice = seconds(1);
constexpr milliseconds kCall = seconds(10);
constexpr milliseconds kAttempt = seconds(3);  // the time after which a call that may be repeated is
constexpr milliseconds kPause(50);             // between two attempts

}  // namespace

CoordinationClient::CoordinationClient(const RpcProbe::Open& open, const TaskId& task, const std::string& leader,
                                       const MembershipOptions& options)
    : task_(task),
      incarnation_(draw_number()),
      leader_(leader),
      options_(options),
      calls_(leader, open, {.wait_for_ready = true}),
      heartbeats_(leader, open),
      last_word_(leader, open) {}

proto::Task CoordinationClient::self() const {
  proto::Task task;
  task.set_type(task_.type);
  task.set_index(task_.index);
  task.set_incarnation(incarnation_);
  return task;
}

void CoordinationClient::require_good(const std::string& what, const proto::Answer& answer) const {
  if (answer.kind() == proto::Answer::FAILED) cohort::fail<Unavailable>("[cluster] ", what, ": ", answer.reason());
  if (answer.kind() == proto::Answer::REFUSED) {
    cohort::fail<FailedPrecondition>("[cluster] ", what, ": ", answer.reason());
  }
}

void CoordinationClient::raise_unreachable(const std::string& what, const std::exception& error) const {
  cohort::fail<Unavailable>("[cluster] ", what, ": ", task_.to_string(), " cannot reach the coordination leader ",
                            leader_, ": ", error.what());
}

std::optional<proto::Answer> CoordinationClient::given_up() {
  const std::lock_guard lock(mutex_);
  if (!given_up_) return std::nullopt;
  proto::Answer answer;
  answer.set_kind(proto::Answer::FAILED);
  answer.set_reason(*given_up_);
  return answer;
}

// Calls once. If the group was given up meanwhile it has failed, whatever the call returned.
template <typename Request>
proto::Answer CoordinationClient::attempt(const std::string& call, const Request& request, milliseconds limit,
                                          milliseconds again) {
  if (auto failed = given_up()) return *failed;
  try {
    return message_in<proto::Answer>(calls_.call("/coordination/" + call, make_frame(request), limit, again));
  } catch (const Error&) {
    if (auto failed = given_up()) return *failed;
    throw;
  }
}

// Calls until there is an answer, each time over a new connection: an old one may be silent for some time after an
// outage. What is asked for may be done twice.
template <typename Request>
proto::Answer CoordinationClient::once(const std::string& what, const std::string& call, const Request& request) {
  const Deadline deadline(std::max(kCall, options_.heartbeat_timeout));
  std::optional<proto::Answer> answer;
  while (!answer) {
    try {
      answer = attempt(call, request, std::min(kAttempt, deadline.left()));
    } catch (const InvalidArgument&) {
      throw;  // the value is too long
    } catch (const Error& error) {
      if (!may_pass(error) || deadline.passed()) raise_unreachable(what, error);
      std::this_thread::sleep_for(kPause);
    }
  }
  require_good(what, *answer);
  return *answer;
}

// Repeats the call until the answer is complete.
template <typename Request>
proto::Answer CoordinationClient::until_complete(const std::string& what, const std::string& call, Request request,
                                                 milliseconds timeout, Waiting waiting) {
  proto::Answer answer;
  BeatPlan leader(options_.heartbeat_timeout, Deadline::Clock::now());
  std::string missing = "the coordination leader, " + leader_;
  const auto step = [&](const Deadline& deadline) -> std::string {
    const bool beats = waiting == Waiting::kAsSignOfLife;
    const BeatPlan::Attempt beat = leader.next(Deadline::Clock::now());
    const milliseconds slice = std::min(
        {beats ? beat.wait : kSlice, options_.heartbeat_timeout / 3, options_.report_interval, deadline.left()});
    request.set_wait_ms(static_cast<uint32_t>(slice.count()));
    try {
      answer = attempt(call, request, slice + seconds(1), beats ? slice + beat.again : RpcProbe::kNever);
      leader.heard(Deadline::Clock::now());
    } catch (const Error& error) {
      if (!may_pass(error)) raise_unreachable(what, error);
      leader.failed();
      return missing;
    }
    require_good(what, answer);
    if (answer.kind() == proto::Answer::DONE) return "";
    if (answer.kind() == proto::Answer::OVER) {
      missing = answer.reason() + " at " + leader_;
      std::this_thread::sleep_for(kPause);
    } else {
      missing = c10::Join(", ", answer.missing());
    }
    return missing;
  };
  wait_reporting({.who = "[cluster] " + task_.to_string(),
                  .in = what,
                  .limit = timeout,
                  .report_interval = options_.report_interval},
                 step);
  return answer;
}

std::vector<std::string> CoordinationClient::enter(const std::string& cluster) {
  proto::RegisterRequest request;
  *request.mutable_task() = self();
  request.set_cluster(cluster);
  request.set_process(this_process());
  request.set_info(options_.info);
  const proto::Answer answer =
      until_complete("start-up", "Register", request, options_.start_timeout, Waiting::kAsSignOfLife);
  return {answer.infos().begin(), answer.infos().end()};
}

void CoordinationClient::barrier(const std::string& name, milliseconds timeout) {
  proto::BarrierRequest request;
  *request.mutable_task() = self();
  request.set_name(name);
  (void)until_complete("the barrier " + name, "Barrier", request, timeout);
}

std::string CoordinationClient::get(const std::string& key, milliseconds timeout) {
  proto::GetRequest request;
  *request.mutable_task() = self();
  request.set_key(key);
  return until_complete("get", "Get", request, timeout).value();
}

std::optional<std::string> CoordinationClient::try_get(const std::string& key) {
  proto::GetRequest request;
  *request.mutable_task() = self();
  request.set_key(key);
  const proto::Answer answer = once("get", "Get", request);
  return answer.kind() == proto::Answer::DONE ? std::optional(answer.value()) : std::nullopt;
}

std::string CoordinationClient::put(const std::string& key, const std::string& value, bool if_absent) {
  proto::PutRequest request;
  *request.mutable_task() = self();
  request.set_key(key);
  request.set_value(value);
  request.set_if_absent(if_absent);
  return once("put", "Put", request).value();
}

// Ends the group. If it has failed already the caller has what it wanted.
void CoordinationClient::fail(const std::string& reason) {
  proto::FailRequest request;
  *request.mutable_task() = self();
  request.set_reason(reason);
  try {
    (void)attempt("Fail", request, kCall);
  } catch (const Error& error) {
    raise_unreachable("fail", error);
  }
}

void CoordinationClient::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!given_up_) given_up_ = reason;
  }
  calls_.close();
}

void CoordinationClient::leave(milliseconds limit) {
  proto::LeaveRequest request;
  *request.mutable_task() = self();
  try {
    (void)last_word_.call("/coordination/Leave", make_frame(request), limit, BeatPlan::kAgain);
  } catch (const Error&) {
    // It is no error here if nobody is left to be told.
  }
}

std::optional<proto::Answer> CoordinationClient::beat(std::size_t known_left, const BeatPlan::Attempt& attempt) {
  proto::BeatRequest request;
  *request.mutable_task() = self();
  request.set_wait_ms(static_cast<uint32_t>(attempt.wait.count()));
  request.set_known_left(static_cast<uint32_t>(known_left));
  try {
    return message_in<proto::Answer>(
        heartbeats_.call("/coordination/Beat", make_frame(request), attempt.limit, attempt.wait + attempt.again));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace cohort
