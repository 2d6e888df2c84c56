#include "wings/parameter_server/coordinator/server_watch.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/wait_reporting.h"
#include "cluster/beat_plan.h"
#include "cohort/cluster/cluster_spec.h"
#include "rpc/calls.h"
#include "rpc/status.h"

namespace cohort {

namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// The time for which an address has to refuse connections until its server counts as gone.
constexpr milliseconds kRefused(300);
constexpr milliseconds kMeetPause(100);  // between two attempts
constexpr int64_t kForgetEvery = 1000;   // closures

}  // namespace

std::string KnownServers::name(int server) {
  return TaskId{"ps", server}.to_string();
}

void KnownServers::require_charge() const {
  if (!fenced) return;
  fail<FailedPrecondition>("[coordinator] another coordinator is in charge of the parameter servers");
}

proto::Order KnownServers::order(uint64_t process) const {
  const std::lock_guard lock(mutex);
  proto::Order order;
  order.set_epoch(roster.view().epoch());
  order.set_view(roster.view().number());
  order.set_process(process);
  return order;
}

ServerWatch::~ServerWatch() {
  request_stop();
}

void ServerWatch::request_stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  { const std::lock_guard lock(known_.mutex); }
  known_.wake.notify_all();
}

void ServerWatch::start() {
  {
    const std::lock_guard lock(known_.mutex);
    for (Liveness& alive : known_.alive) alive.hear(SteadyClock::now());  // they are watched from now on
  }
  for (std::size_t i = 0; i < known_.alive.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { watch(static_cast<int>(i), stop); });
  }
}

ServerWatch::Hello ServerWatch::hello(int server, bool first, milliseconds limit) {
  proto::HelloRequest request;
  if (first) request.set_catalog(catalog_.description());
  return message_in<Hello>(client_.call(server, "/ps/Hello", make_frame(request), limit));
}

uint64_t ServerWatch::meet(bool one_is_enough) {
  std::vector<std::optional<Hello>> replies(known_.alive.size());
  const Deadline soon(options_.heartbeat_timeout);
  const auto attempt = [&](const Deadline&) {
    for (std::size_t i = 0; i < replies.size(); ++i) {
      const int server = static_cast<int>(i);
      if (replies[i]) continue;
      try {
        replies[i] = hello(server, /*first=*/true, options_.heartbeat_timeout);
        note(server, *replies[i]);
      } catch (const Unavailable&) {
      } catch (const DeadlineExceeded&) {
      }
    }
    std::string names;
    const std::lock_guard lock(known_.mutex);
    for (const int server : known_.roster.missing(one_is_enough && soon.passed())) {
      names += (names.empty() ? "" : ", ") + KnownServers::name(server);
    }
    return names;
  };
  wait_reporting({.who = "[parameter server]",
                  .limit = options_.start_timeout,
                  .report_interval = options_.report_interval,
                  .pause = kMeetPause},
                 attempt);
  uint64_t epoch = 0;
  for (const std::optional<Hello>& reply : replies) {
    if (reply) epoch = std::max(epoch, reply->epoch());
  }
  return epoch;
}

void ServerWatch::note(int server, const Hello& reply) {
  uint64_t own = 0;
  bool newly_fenced = false;
  {
    const std::lock_guard lock(known_.mutex);
    own = known_.roster.view().epoch();
    newly_fenced = known_.begun && reply.epoch() > own && !known_.fenced;
    known_.fenced = known_.fenced || newly_fenced;
    Liveness& alive = known_.alive[static_cast<std::size_t>(server)];
    known_.noted = known_.noted || !known_.roster.up(server) || !alive.is(reply.incarnation());
    alive.enter(reply.incarnation(), SteadyClock::now());
    known_.roster.enter(server, reply.incarnation());
  }
  known_.wake.notify_all();
  if (!newly_fenced) return;
  events_.lost(std::make_exception_ptr(
      FailedPrecondition(c10::str("[coordinator] another coordinator, of epoch ", reply.epoch(), ", is in charge of ",
                                  KnownServers::name(server), "; this one is of epoch ", own, " and ends"))));
}

// Notes a failed call. A server that is silent for `patience` is lost.
void ServerWatch::note_silence(int server, milliseconds patience) {
  const std::lock_guard lock(known_.mutex);
  Liveness& alive = known_.alive[static_cast<std::size_t>(server)];
  if (!known_.roster.up(server) || alive.silence(SteadyClock::now()) < patience) return;
  alive.suspect();
  known_.roster.lose(server);
  known_.noted = true;
  log().warn("[parameter server] {} is lost", KnownServers::name(server));
  known_.wake.notify_all();
}

void ServerWatch::note_refusal(int server, uint64_t process) {
  note(server, hello(server, /*first=*/false, options_.heartbeat_timeout));
  const std::lock_guard lock(known_.mutex);
  if (!known_.fenced) known_.roster.distrust(server, process);
}

// Tells a server which work is done. The view is looked up first: what is done in it is not what is done in a later
// one, in which a server that was filled begins again.
void ServerWatch::tell_done(int server, int64_t& told) {
  proto::ForgetRequest request;
  *request.mutable_order() = known_.order();
  const int64_t done = events_.done_below();
  if (done < told) told = done;  // work is being repeated
  if (done - told < kForgetEvery) return;
  request.set_closure(done);
  try {
    (void)client_.call(server, "/ps/Forget", make_frame(request), options_.heartbeat_timeout);
    told = done;
  } catch (const Error& error) {
    if (!may_pass(error)) throw;  // it is told again
  }
}

void ServerWatch::watch(int server, const std::stop_token& stop) {
  const milliseconds interval = std::max(milliseconds(10), options_.heartbeat_timeout / 10);
  const std::unique_ptr<RpcProbe> probe = client_.probe(server);
  const std::stop_callback end(stop, [&] { probe->close(); });
  const Frame question = make_frame(proto::HelloRequest());
  int64_t told = 0;
  BeatPlan plan(options_.heartbeat_timeout, SteadyClock::now());
  while (!stop.stop_requested()) {
    try {
      if (plan.lost(SteadyClock::now())) plan = BeatPlan(options_.heartbeat_timeout, SteadyClock::now());
      const BeatPlan::Attempt attempt = plan.next(SteadyClock::now());
      plan.failed();  // unless an answer comes
      note(server, message_in<Hello>(probe->call("/ps/Hello", question, attempt.limit, attempt.again)));
      plan.heard(SteadyClock::now());
      tell_done(server, told);
    } catch (const Unavailable&) {
      note_silence(server, std::min(kRefused, options_.heartbeat_timeout));
    } catch (const Cancelled&) {
      // The watch ends, or a new view has cancelled all calls to this server. The next call tells it.
    } catch (const std::exception&) {
      note_silence(server, options_.heartbeat_timeout);
    }
    std::unique_lock lock(known_.mutex);
    known_.wake.wait_for(lock, interval, [&] { return stop.stop_requested(); });
  }
}

}  // namespace cohort
