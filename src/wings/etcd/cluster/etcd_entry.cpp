// How a task enters a run. A job has one run after the other, and a number says which is the present one. A run is over
// when it has failed, when a task is lost or when all have left; whoever finds it so begins the next one. A process
// that finds its place taken asks who has it: the first one answers, or its lease ends.
#include <algorithm>
#include <thread>

#include "base/draw.h"
#include "base/fail.h"
#include "base/number_in.h"
#include "base/wait_reporting.h"
#include "cluster/coordination/state.h"
#include "cluster/own_host.h"
#include "rpc/security.h"
#include "rpc/status.h"
#include "wings/etcd/cluster/etcd_coordination.h"

namespace cohort {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kEntryCall = seconds(10);
constexpr milliseconds kEntryPause(100);  // between two looks at a place that is taken
constexpr milliseconds kWithdrawal(1000);
constexpr const char* kGroupBefore = "the end of the group before";

EtcdAddress address_of(const ClusterSpec& cluster, const MembershipOptions& options) {
  EtcdAddress address = parse_etcd_address(options.coordination);
  if (address.job.empty()) address.job = cluster.address(*coordination_leader(cluster));
  return address;
}

EtcdClient open_etcd(const EtcdAddress& address, const MembershipOptions& options) {
  const JobSecurity security = job_security(options.security, options.allow_insecure);
  return EtcdClient(address, security.security, security.allow_insecure);
}

// Returns the limit of a call within a start-up.
milliseconds within(const Deadline& deadline) {
  return std::clamp(deadline.left(), milliseconds(1), kEntryCall);
}

int64_t ttl_of(milliseconds heartbeat_timeout) {
  return std::chrono::ceil<seconds>(heartbeat_timeout).count();
}

}  // namespace

EtcdCoordination::EtcdCoordination(const ClusterSpec& cluster, const TaskId& task, const MembershipOptions& options)
    : tasks_(CoordinationState(cluster, options.heartbeat_timeout).tasks()),
      me_(task.to_string()),
      incarnation_(draw_number()),
      options_(options),
      keys_(address_of(cluster, options).job),
      calls_(open_etcd(address_of(cluster, options), options)),
      heartbeats_(open_etcd(address_of(cluster, options), options)),
      last_word_(open_etcd(address_of(cluster, options), options)) {}

EtcdCoordination::~EtcdCoordination() {
  heartbeats_.close();  // ends the watch
}

EtcdCoordination::Present EtcdCoordination::present(EtcdClient& client, milliseconds limit) const {
  const Deadline deadline(limit);
  for (;;) {
    etcd::RangeRequest request;
    request.set_key(keys_.run());
    const etcd::RangeResponse answer = client.range(request, deadline.left());
    if (answer.kvs_size() > 0) {
      const std::string what = c10::str("[cluster] the key ", keys_.run(), " of ", name());
      return {.run = number_in<int64_t>(answer.kvs(0).value(), what), .written = answer.kvs(0).mod_revision()};
    }
    client.transact(EtcdTransaction().if_created_at(keys_.run(), 0).put(keys_.run(), "1").request(), deadline.left());
  }
}

// Begins the next run, unless another task has done so. The keys of the run before the last one are removed: those who
// are still there learn by that, if by nothing else, that they are of the past. So are those of one that all have left.
void EtcdCoordination::begin_next(EtcdClient& client, const Present& before, bool all_left, milliseconds limit) const {
  EtcdTransaction next;
  next.if_written_at(keys_.run(), before.written).put(keys_.run(), std::to_string(before.run + 1));
  if (before.run > 1) next.remove_all(keys_.all_of(before.run - 1));
  if (all_left) next.remove_all(keys_.all_of(before.run));
  client.transact(next.request(), limit);
}

EtcdRun EtcdCoordination::read(EtcdClient& client, int64_t run, milliseconds limit) const {
  EtcdRun keys(tasks_, keys_.control(run));
  etcd::RangeRequest request;
  request.set_key(keys.prefix());
  request.set_range_end(end_of_prefix(keys.prefix()));
  keys.replace(client.range(request, limit).kvs());
  return keys;
}

std::vector<std::string> EtcdCoordination::enter(const std::string& cluster) {
  std::string missing = name();
  const auto step = [&](const Deadline& deadline) -> std::string {
    std::optional<std::string> failed;
    try {
      const std::string in_the_way = place_ ? "" : claim(cluster, deadline);
      missing = place_ ? await_others(deadline, failed) : in_the_way;
    } catch (const Error& error) {
      if (!may_pass(error)) throw;
      // A call that the end of the wait has cut short says nothing of etcd.
      if (!deadline.passed()) missing = name();
      std::this_thread::sleep_for(std::min(kEntryPause, deadline.left()));
      return missing;
    }
    if (failed) cohort::fail<Unavailable>("[cluster] start-up: ", *failed);
    return missing;
  };
  try {
    wait_reporting(waiting("start-up", options_.start_timeout), step);
  } catch (...) {
    withdraw(kWithdrawal);
    throw;
  }
  return mirror_->run().infos();
}

// Looks for a place in the present run. Returns what is in the way, or "" when this task has its place.
std::string EtcdCoordination::claim(const std::string& cluster, const Deadline& deadline) {
  const Present now = present(calls_, within(deadline));
  const EtcdRun run = read(calls_, now.run, within(deadline));
  if (run.over() || run.has("left/" + me_)) {
    begin_next(calls_, now, /*all_left=*/false, within(deadline));
    return kGroupBefore;
  }
  if (const auto missing = obstacle(run, cluster, deadline)) {
    std::this_thread::sleep_for(kEntryPause);
    return *missing;
  }
  return take_place(cluster, now, deadline);
}

// Returns the task that must be gone before this one can enter. A task that is there, and shows that it is alive, is
// an error.
std::optional<std::string> EtcdCoordination::obstacle(const EtcdRun& run, const std::string& cluster,
                                                      const Deadline& deadline) {
  for (const TaskId& task : tasks_) {
    const std::string name = task.to_string();
    const auto first = run.entered(name);
    if (!first || first->incarnation() == incarnation_) continue;
    if (name == me_) {
      if (!contest(run, name, deadline)) return c10::str("the place of ", me_, ", which ", first->process(), " has");
      cohort::fail<FailedPrecondition>("[cluster] start-up: the place of ", me_, " is taken by ", first->process(),
                                       ", which is alive; this process is ", this_process());
    }
    if (first->cluster() == cluster) continue;
    if (!contest(run, name, deadline)) return c10::str("a sign of ", name, ", which has another cluster");
    cohort::fail<FailedPrecondition>("[cluster] start-up: ", me_, " (", this_process(), ") was started with another ",
                                     "cluster: it has ", cluster, ", ", name, " (", first->process(), ") has ",
                                     first->cluster());
  }
  return std::nullopt;
}

// Asks the process that has the place of the task for a sign of life. Returns whether it has given one.
bool EtcdCoordination::contest(const EtcdRun& run, const std::string& task, const Deadline& deadline) {
  const std::string own = std::to_string(incarnation_);
  const auto asked = run.value("contest/" + task);
  const auto answered = run.value("answer/" + task);
  if (answered == own) return true;
  if (asked && asked != answered) return false;  // one after the other
  calls_.transact(EtcdTransaction().put(run.prefix() + "contest/" + task, own).request(), within(deadline));
  return false;
}

std::string EtcdCoordination::take_place(const std::string& cluster, const Present& now, const Deadline& deadline) {
  etcd::Entered entered;
  entered.set_incarnation(incarnation_);
  entered.set_process(this_process());
  entered.set_cluster(cluster);
  entered.set_info(options_.info);
  const std::string prefix = keys_.control(now.run);
  const std::string alive = prefix + "alive/" + me_;
  const int64_t lease = calls_.grant(ttl_of(options_.heartbeat_timeout), within(deadline));
  const etcd::TxnResponse answer = calls_.transact(EtcdTransaction()
                                                       .if_written_at(keys_.run(), now.written)
                                                       .if_created_at(prefix + "entered/" + me_, 0)
                                                       .if_created_at(prefix + "failure", 0)
                                                       .put(prefix + "entered/" + me_, entered.SerializeAsString())
                                                       .put(alive, std::to_string(incarnation_), lease)
                                                       .else_read(alive)
                                                       .request(),
                                                   within(deadline));
  place_ = Place{.run = now.run, .lease = lease, .created = answer.header().revision()};
  if (!answer.succeeded()) {
    // The answer to the same request may have been lost before.
    const auto& found = answer.responses(0).response_range();
    const bool own = found.kvs_size() > 0 && found.kvs(0).value() == std::to_string(incarnation_);
    if (own) place_ = Place{.run = now.run, .lease = found.kvs(0).lease(), .created = found.kvs(0).create_revision()};
    if (!own) place_.reset();
    if (!own || place_->lease != lease) calls_.revoke(lease, within(deadline));
    if (!own) return kGroupBefore;
  }
  mirror_ = std::make_unique<EtcdMirror>(heartbeats_, EtcdRun(tasks_, prefix));
  return "";
}

// Waits for the others, and shows them that this task is alive. Returns the names of those who are missing. `failed`
// gets the reason why the run has failed, if it has.
std::string EtcdCoordination::await_others(const Deadline& deadline, std::optional<std::string>& failed) {
  try {
    heartbeats_.keep_alive(place_->lease, within(deadline));
  } catch (const NotFound&) {
    failed = own_loss();
    return "";
  }
  const milliseconds slice = std::min({options_.heartbeat_timeout / 4, options_.report_interval, deadline.left()});
  mirror_->wait(slice, [&](const EtcdRun& run) {
    return run.failure() || run.loss() || run.not_entered().empty() ||
           run.value("contest/" + me_) != run.value("answer/" + me_);
  });
  const EtcdRun run = mirror_->run();
  if (!run.has("entered/" + me_)) return name();  // nothing is known yet
  answer_contest(run);
  // A task that was there before this one and is lost was one of the group before, as often as not.
  if (const auto loss = run.loss(); loss && loss->entered < place_->created) {
    withdraw(kWithdrawal);
    return kGroupBefore;
  }
  // Once it is complete it has begun, for all of its tasks: a failure since then is the heartbeats' affair.
  if (!run.not_entered().empty()) failed = failure_of(run);
  return c10::Join(", ", run.not_entered());
}

// Gives up the place in a run that is not complete.
void EtcdCoordination::withdraw(milliseconds limit) {
  mirror_.reset();
  if (!place_) return;
  try {
    last_word_.transact(fenced().remove(key("entered/" + me_)).remove(key("alive/" + me_)).request(), limit);
    last_word_.revoke(place_->lease, limit);
  } catch (const Error&) {
    // The lease ends by itself.
  }
  place_.reset();
}

}  // namespace cohort
