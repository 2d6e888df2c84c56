// The calls of a task that has entered. It waits for changes of its mirror of the run. Its writes hold only while it is
// alive.
#include "wings/etcd/cluster/etcd_coordination.h"

#include <algorithm>
#include <thread>

#include "base/deadline.h"
#include "base/fail.h"
#include "cluster/own_host.h"
#include "rpc/status.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Answer = coordination::Answer;

constexpr milliseconds kWrite = seconds(10);
constexpr milliseconds kLook(400);     // the longest wait between two looks at whether the group was given up
constexpr milliseconds kFirstPoll(5);  // for a value that is not there yet; the pauses double
constexpr milliseconds kLastPoll(200);

Answer failed_answer(const std::string& reason) {
  Answer answer;
  answer.set_kind(Answer::FAILED);
  answer.set_reason(reason);
  return answer;
}

}  // namespace

WaitOptions EtcdCoordination::waiting(const std::string& what, milliseconds limit) const {
  return {.who = "[cluster] " + me_, .in = what, .limit = limit, .report_interval = options_.report_interval};
}

std::string EtcdCoordination::loss_text(const std::string& task, const std::string& process) const {
  return c10::str(task, " (", process, ") is lost: nothing was heard of it for ", to_text(options_.heartbeat_timeout));
}

// Returns why this task has failed, whose lease has ended: others have taken it for lost.
std::string EtcdCoordination::own_loss() const {
  if (mirror_) {
    if (const auto reason = mirror_->run().failure()) return *reason;
  }
  return loss_text(me_, this_process());
}

std::optional<std::string> EtcdCoordination::given_up() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

void EtcdCoordination::require_well(const std::string& what) {
  if (const auto reason = given_up()) cohort::fail<Unavailable>("[cluster] ", what, ": ", *reason);
}

void EtcdCoordination::raise_unreachable(const std::string& what, const std::exception& error) const {
  cohort::fail<Unavailable>("[cluster] ", what, ": ", me_, " cannot reach ", name(), ": ", error.what());
}

// Begins a transaction that holds only while this task is alive.
EtcdTransaction EtcdCoordination::fenced() const {
  EtcdTransaction transaction;
  transaction.if_created_at(key("alive/" + me_), place_->created).else_read(key("alive/" + me_));
  return transaction;
}

// Does a fenced transaction. Unavailable: this task is lost, the group was given up, or etcd does not answer.
etcd::TxnResponse EtcdCoordination::write(EtcdTransaction transaction, const std::string& what) {
  require_well(what);
  etcd::TxnResponse answer;
  try {
    answer = calls_.transact(transaction.request(), std::max(kWrite, options_.heartbeat_timeout));
  } catch (const InvalidArgument&) {
    throw;  // the value is too long
  } catch (const Error& error) {
    require_well(what);
    raise_unreachable(what, error);
  }
  if (answer.succeeded()) return answer;
  const etcd::RangeResponse& own = answer.responses(0).response_range();
  const bool alive = own.kvs_size() > 0 && own.kvs(0).create_revision() == place_->created;
  if (!alive) cohort::fail<Unavailable>("[cluster] ", what, ": ", own_loss());
  return answer;
}

std::string EtcdCoordination::put(const std::string& name, const std::string& value, bool if_absent) {
  const std::string full = keys_.values(place_->run) + name;
  EtcdTransaction transaction = fenced().put(full, value);
  if (if_absent) transaction.if_created_at(full, 0).else_read(full);
  const etcd::TxnResponse answer = write(std::move(transaction), "put");
  if (answer.succeeded()) return value;
  return answer.responses(1).response_range().kvs(0).value();
}

std::optional<std::string> EtcdCoordination::try_get(const std::string& name) {
  require_well("get");
  etcd::RangeRequest request;
  request.set_key(keys_.values(place_->run) + name);
  try {
    const etcd::RangeResponse answer = calls_.range(request, std::max(kWrite, options_.heartbeat_timeout));
    return answer.kvs_size() > 0 ? std::optional(answer.kvs(0).value()) : std::nullopt;
  } catch (const Error& error) {
    require_well("get");
    raise_unreachable("get", error);
  }
}

std::string EtcdCoordination::get(const std::string& name, milliseconds timeout) {
  std::string value;
  milliseconds pause = kFirstPoll;
  wait_reporting(waiting("get", timeout), [&](const Deadline& deadline) -> std::string {
    if (const auto found = try_get(name)) {
      value = *found;
      return "";
    }
    mirror_->wait(std::min(pause, deadline.left()), [](const EtcdRun&) { return false; });
    pause = std::min(2 * pause, kLastPoll);
    return "the key " + name;
  });
  return value;
}

void EtcdCoordination::barrier(const std::string& name, milliseconds timeout) {
  const std::string what = "the barrier " + name;
  (void)write(fenced().put(key("barrier/" + name + "/" + me_), ""), what);
  wait_reporting(waiting(what, timeout), [&](const Deadline& deadline) -> std::string {
    std::vector<std::string> missing;
    std::optional<EtcdRun> failed;
    mirror_->wait(std::min({kLook, options_.report_interval, deadline.left()}), [&](const EtcdRun& run) {
      missing = run.not_at(name);
      if (run.failure() || run.loss()) failed = run;
      return missing.empty() || failed;
    });
    require_well(what);
    if (failed) cohort::fail<Unavailable>("[cluster] ", what, ": ", *failure_of(*failed));
    return c10::Join(", ", missing);
  });
}

// Returns why the run has failed, if it has. The loss of a task becomes the reason that stands.
std::optional<std::string> EtcdCoordination::failure_of(const EtcdRun& run) {
  if (run.failure()) return run.failure();
  if (const auto loss = run.loss()) return settle(loss_text(loss->task, loss->process));
  return std::nullopt;
}

// Makes this the reason why the run has failed, unless there is one. Returns the one that stands.
std::string EtcdCoordination::settle(const std::string& reason) {
  EtcdTransaction transaction = fenced().if_created_at(key("failure"), 0).else_read(key("failure"));
  transaction.put(key("failure"), reason);
  try {
    const etcd::TxnResponse answer = calls_.transact(transaction.request(), options_.heartbeat_timeout);
    if (answer.succeeded() || answer.responses(1).response_range().kvs_size() == 0) return reason;
    return answer.responses(1).response_range().kvs(0).value();
  } catch (const Error&) {
    return reason;  // the others find the same loss
  }
}

// Ends the group. If it has failed already the caller has what it wanted.
void EtcdCoordination::fail(const std::string& reason) {
  if (given_up()) return;
  EtcdTransaction transaction = fenced().if_created_at(key("failure"), 0).put(key("failure"), reason);
  try {
    (void)calls_.transact(transaction.request(), kWrite);
  } catch (const Error& error) {
    if (!given_up()) raise_unreachable("fail", error);
  }
}

void EtcdCoordination::give_up(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!given_up_) given_up_ = reason;
  }
  calls_.close();
  mirror_->wake();
}

void EtcdCoordination::leave(milliseconds limit) {
  mirror_->wake();
  heartbeats_.close();
  const Deadline deadline(limit);
  try {
    last_word_.transact(fenced().put(key("left/" + me_), "").remove(key("alive/" + me_)).request(), deadline.left());
    last_word_.revoke(place_->lease, deadline.left());
    const Present now = present(last_word_, deadline.left());
    if (now.run != place_->run || !read(last_word_, now.run, deadline.left()).all_left()) return;
    begin_next(last_word_, now, /*all_left=*/true, deadline.left());
  } catch (const Error&) {
    // It is no error here if nobody is left to be told.
  }
}

void EtcdCoordination::stop_beating() {
  mirror_->wake();
  heartbeats_.close();
}

// Answers a second process that wants the place of this task.
void EtcdCoordination::answer_contest(const EtcdRun& run) {
  const auto asked = run.value("contest/" + me_);
  if (!asked || asked == run.value("answer/" + me_)) return;
  (void)heartbeats_.transact(fenced().put(key("answer/" + me_), *asked).request(), options_.heartbeat_timeout / 4);
}

std::optional<Answer> EtcdCoordination::beat(std::size_t known_left, const BeatPlan::Attempt& attempt) {
  try {
    heartbeats_.keep_alive(place_->lease, attempt.limit);
    mirror_->wait(attempt.wait, [&](const EtcdRun& run) {
      return run.failure() || run.loss() || run.gone().size() != known_left ||
             run.value("contest/" + me_) != run.value("answer/" + me_);
    });
    const EtcdRun run = mirror_->run();
    if (const auto reason = failure_of(run)) return failed_answer(*reason);
    answer_contest(run);
    Answer answer;
    for (const std::string& task : run.gone()) answer.add_left(task);
    return answer;
  } catch (const NotFound&) {
    return failed_answer(own_loss());
  } catch (const Error& error) {
    if (!may_pass(error)) return failed_answer(error.what());
    return std::nullopt;
  }
}

}  // namespace cohort
