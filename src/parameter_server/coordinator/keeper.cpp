#include "parameter_server/coordinator/keeper.h"

#include <algorithm>

#include "base/error_text.h"
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
constexpr milliseconds kPause(100);     // between two attempts
constexpr int64_t kForgetEvery = 1000;  // closures

}  // namespace

ServerKeeper::ServerKeeper(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options,
                           KeeperEvents events)
    : catalog_(std::move(catalog)),
      client_(client),
      options_(options),
      events_(std::move(events)),
      epochs_(options_.directory),
      roster_({.servers = catalog_->num_servers(), .replicas = options_.replicas, .run = options_.run}),
      alive_(static_cast<std::size_t>(catalog_->num_servers()), Liveness(options_.heartbeat_timeout)) {
  if (options_.replicas != 1 && options_.replicas != 2) {
    fail<InvalidArgument>("[parameter server] replicas is ", options_.replicas, ", wanted 1 or 2");
  }
  if (options_.replicas > catalog_->num_servers()) {
    fail<InvalidArgument>("[parameter server] replicas is 2, but there is only one parameter server");
  }
}

ServerKeeper::~ServerKeeper() {
  for (std::jthread& thread : threads_) thread.request_stop();
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

std::string ServerKeeper::name(int server) const {
  return TaskId{"ps", server}.to_string();
}

void ServerKeeper::set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure) {
  require_fit(*catalog_, *saved);
  const std::lock_guard lock(mutex_);
  source_ = std::move(saved);
  source_closure_ = next_closure;
}

// -- The beginning.

ServerKeeper::Hello ServerKeeper::hello(int server, bool first, milliseconds limit) {
  proto::HelloRequest request;
  if (first) request.set_catalog(catalog_->description());
  return message_in<Hello>(client_.call(server, "/ps/Hello", make_frame(request), limit));
}

// Waits for the servers that are needed, and a moment for the others. Returns the latest epoch that they know.
uint64_t ServerKeeper::meet() {
  const bool has_begun_before = epochs_.latest() > 0;
  std::vector<std::optional<Hello>> replies(alive_.size());
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
    const std::lock_guard lock(mutex_);
    for (const int server : roster_.missing(/*one_is_enough=*/has_begun_before && soon.passed())) {
      names += (names.empty() ? "" : ", ") + name(server);
    }
    return names;
  };
  wait_reporting({.who = "[parameter server]",
                  .limit = options_.start_timeout,
                  .report_interval = options_.report_interval,
                  .pause = kPause},
                 attempt);
  uint64_t epoch = 0;
  for (const std::optional<Hello>& reply : replies) {
    if (reply) epoch = std::max(epoch, reply->epoch());
  }
  return epoch;
}

// Meets the servers and makes the first view of this coordinator.
void ServerKeeper::begin(const std::map<std::size_t, double>& rates) {
  const uint64_t known = meet();
  const uint64_t epoch = epochs_.claim(known + 1);
  const std::lock_guard lock(mutex_);
  roster_.begin(epoch);
  for (const auto& [variable, rate] : rates) roster_.set_learning_rate(static_cast<uint32_t>(variable), rate);
  begun_ = true;
}

void ServerKeeper::start(const std::map<std::size_t, double>& rates) {
  begin(rates);
  {
    const std::lock_guard lock(mutex_);
    for (Liveness& alive : alive_) alive.hear(SteadyClock::now());  // they are watched from now on
  }
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { watch(static_cast<int>(i), stop); });
  }
  fill_all();
  threads_.emplace_back([this](const std::stop_token& stop) { keep(stop); });
}

// Does what has to be done until every home is served.
void ServerKeeper::fill_all() {
  const auto attempt = [&](const Deadline&) -> std::string {
    try {
      while (step() != RosterAction::Kind::kNone) {
      }
    } catch (const Error& error) {
      if (!may_pass(error)) throw;
      return error_text(error);
    }
    const std::lock_guard lock(mutex_);
    require_charge();
    for (int home = 0; home < roster_.view().homes_size(); ++home) {
      if (!roster_.served(home)) return name(roster_.view().homes(home).primary());
    }
    started_ = true;
    return "";
  };
  wait_reporting({.who = "[parameter server]",
                  .limit = options_.start_timeout,
                  .report_interval = options_.report_interval,
                  .pause = kPause},
                 attempt);
}

// -- What is heard of them.

void ServerKeeper::note(int server, const Hello& reply) {
  uint64_t own = 0;
  bool newly_fenced = false;
  {
    const std::lock_guard lock(mutex_);
    own = roster_.view().epoch();
    newly_fenced = begun_ && reply.epoch() > own && !fenced_;
    fenced_ = fenced_ || newly_fenced;
    Liveness& alive = alive_[static_cast<std::size_t>(server)];
    noted_ = noted_ || !roster_.up(server) || !alive.is(reply.incarnation());
    alive.enter(reply.incarnation(), SteadyClock::now());
    roster_.enter(server, reply.incarnation());
  }
  wake_.notify_all();
  if (!newly_fenced) return;
  events_.lost(std::make_exception_ptr(
      FailedPrecondition(c10::str("[coordinator] another coordinator, of epoch ", reply.epoch(), ", is in charge of ",
                                  name(server), "; this one is of epoch ", own, " and ends"))));
}

// Notes a failed call. A server that is silent for `patience` is lost.
void ServerKeeper::note_silence(int server, milliseconds patience) {
  const std::lock_guard lock(mutex_);
  Liveness& alive = alive_[static_cast<std::size_t>(server)];
  if (!roster_.up(server) || alive.silence(SteadyClock::now()) < patience) return;
  alive.suspect();
  roster_.lose(server);
  noted_ = true;
  log().warn("[parameter server] {} is lost", name(server));
  wake_.notify_all();
}

// Notes that a process refused what a coordinator in charge may order: it was restarted, or lacks the shards of a view.
void ServerKeeper::note_refusal(int server, uint64_t process) {
  note(server, hello(server, /*first=*/false, options_.heartbeat_timeout));
  const std::lock_guard lock(mutex_);
  if (!fenced_) roster_.distrust(server, process);
}

// Throws if another coordinator is in charge. The caller holds mutex_.
void ServerKeeper::require_charge() const {
  if (!fenced_) return;
  fail<FailedPrecondition>("[coordinator] another coordinator is in charge of the parameter servers");
}

proto::Order ServerKeeper::order(uint64_t process) const {
  const std::lock_guard lock(mutex_);
  proto::Order order;
  order.set_epoch(roster_.view().epoch());
  order.set_view(roster_.view().number());
  order.set_process(process);
  return order;
}

// Tells a server which work is done. The view is looked up first: what is done in it is not what is done in a later
// one, in which a server that was filled begins again.
void ServerKeeper::tell_done(int server, int64_t& told) {
  proto::ForgetRequest request;
  *request.mutable_order() = order();
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

void ServerKeeper::forget(const proto::View& view, int64_t closure) {
  proto::ForgetRequest request;
  request.set_closure(closure);
  request.mutable_order()->set_epoch(view.epoch());
  request.mutable_order()->set_view(view.number());
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    try {
      (void)client_.call(static_cast<int>(i), "/ps/Forget", make_frame(request), options_.call_timeout);
    } catch (const Error& error) {
      // The server keeps more than it has to, or is gone.
      if (!may_pass(error)) throw;
      log().warn("{}", error.what());
    }
  }
}

void ServerKeeper::watch(int server, const std::stop_token& stop) {
  const milliseconds interval = std::max(milliseconds(10), options_.heartbeat_timeout / 10);
  const std::unique_ptr<RpcProbe> probe = client_.probe(server);
  const std::stop_callback end(stop, [&] { probe->close(); });
  const Frame question = make_frame(proto::HelloRequest());
  int64_t told = 0;
  BeatPlan plan(options_.heartbeat_timeout, SteadyClock::now());
  while (!stop.stop_requested()) {
    try {
      if (plan.lost(SteadyClock::now())) plan = BeatPlan(options_.heartbeat_timeout, SteadyClock::now());
      const milliseconds limit = plan.next(SteadyClock::now()).limit;
      plan.failed();  // unless an answer comes
      note(server, message_in<Hello>(probe->call("/ps/Hello", question, limit)));
      plan.heard(SteadyClock::now());
      tell_done(server, told);
    } catch (const Unavailable&) {
      note_silence(server, std::min(kRefused, options_.heartbeat_timeout));
    } catch (const Cancelled&) {
      // The watch ends, or a new view has cancelled all calls to this server. The next call tells it.
    } catch (const std::exception&) {
      note_silence(server, options_.heartbeat_timeout);
    }
    Lock lock(mutex_);
    wake_.wait_for(lock, interval, [&] { return stop.stop_requested(); });
  }
}

}  // namespace cohort
