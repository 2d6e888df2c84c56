#include "wings/parameter_server/coordinator/keeper.h"

#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/wait_reporting.h"
#include "rpc/calls.h"
#include "rpc/status.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

constexpr std::chrono::milliseconds kRetryPause(100);  // between two attempts

}  // namespace

ServerKeeper::ServerKeeper(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options,
                           KeeperEvents events)
    : catalog_(std::move(catalog)),
      client_(client),
      options_(options),
      events_(std::move(events)),
      epochs_(options_.directory),
      known_({.servers = catalog_->num_servers(), .replicas = options_.replicas, .run = options_.run},
             options_.heartbeat_timeout),
      transfers_(catalog_, client_, options_),
      watch_(known_, *catalog_, client_, options_, events_) {
  if (options_.replicas != 1 && options_.replicas != 2) {
    fail<InvalidArgument>("[parameter server] replicas is ", options_.replicas, ", wanted 1 or 2");
  }
  if (options_.replicas > catalog_->num_servers()) {
    fail<InvalidArgument>("[parameter server] replicas is 2, but there is only one parameter server");
  }
}

ServerKeeper::~ServerKeeper() {
  thread_.request_stop();
  watch_.request_stop();
}

void ServerKeeper::set_source(std::shared_ptr<const SavedVariables> saved, int64_t next_closure) {
  transfers_.set_source(std::move(saved), next_closure);
}

// -- The beginning.

// Meets the servers and makes the first view of this coordinator.
void ServerKeeper::begin(const std::map<std::size_t, double>& rates) {
  const uint64_t known = watch_.meet(/*one_is_enough=*/epochs_.latest() > 0);
  const uint64_t epoch = epochs_.claim(known + 1);
  const std::lock_guard lock(known_.mutex);
  known_.roster.begin(epoch);
  for (const auto& [variable, rate] : rates) known_.roster.set_learning_rate(static_cast<uint32_t>(variable), rate);
  known_.begun = true;
}

void ServerKeeper::start(const std::map<std::size_t, double>& rates) {
  begin(rates);
  watch_.start();
  fill_all();
  thread_ = std::jthread([this](const std::stop_token& stop) { keep(stop); });
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
    const std::lock_guard lock(known_.mutex);
    known_.require_charge();
    for (int home = 0; home < known_.roster.view().homes_size(); ++home) {
      if (!known_.roster.served(home)) return KnownServers::name(known_.roster.view().homes(home).primary());
    }
    started_ = true;
    return "";
  };
  wait_reporting({.who = "[parameter server]",
                  .limit = options_.start_timeout,
                  .report_interval = options_.report_interval,
                  .pause = kRetryPause},
                 attempt);
}

void ServerKeeper::keep(const std::stop_token& stop) {
  using Kind = RosterAction::Kind;
  while (!stop.stop_requested()) {
    {
      Lock lock(known_.mutex);
      known_.wake.wait_for(lock, kRetryPause, [&] { return known_.noted || wish_ || stop.stop_requested(); });
      known_.noted = false;
    }
    try {
      for (Kind did = Kind::kCopy; did != Kind::kNone && !stop.stop_requested();) {
        did = step();
        // A copy takes long, so that what the coordinator wants does not wait for it.
        if ((did == Kind::kNone || did == Kind::kCopy) && grant()) did = Kind::kPublish;
      }
    } catch (const std::exception& error) {
      // Another server was lost meanwhile, or this one again. The next news decide.
      if (!stop.stop_requested()) log().warn("{}; tries again", error_text(error));
      std::this_thread::sleep_for(kRetryPause);
    }
  }
}

// Does the next thing that the roster wants. Returns its kind.
RosterAction::Kind ServerKeeper::step() {
  RosterAction action;
  {
    const std::lock_guard lock(known_.mutex);
    if (known_.fenced) return RosterAction::Kind::kNone;
    action = known_.roster.next();
  }
  switch (action.kind) {
    case RosterAction::Kind::kNone:
      break;
    case RosterAction::Kind::kPublish:
      publish();
      break;
    case RosterAction::Kind::kFill:
      fill(action);
      break;
    case RosterAction::Kind::kCopy:
      copy(action);
      break;
  }
  look_for_missing();
  return action.kind;
}

// -- What the coordinator wants.

void ServerKeeper::ask(const char* what, std::function<void()> wish) {
  Lock lock(known_.mutex);
  wish_ = std::move(wish);
  const uint64_t mine = ++asked_;
  known_.wake.notify_all();
  (void)known_.wake.wait_for(lock, options_.return_timeout, [&] { return granted_ >= mine || known_.fenced; });
  if (granted_ >= mine) return;
  wish_ = nullptr;
  known_.require_charge();
  fail<DeadlineExceeded>("[parameter server] ", what, " could not be given to all servers within ",
                         to_text(options_.return_timeout));
}

// Carries out a request when nothing has to be repaired. The request stays if a server is lost meanwhile.
bool ServerKeeper::grant() {
  std::function<void()> wish;
  uint64_t number = 0;
  {
    const std::lock_guard lock(known_.mutex);
    if (known_.fenced) return false;
    wish = wish_;
    number = asked_;
  }
  if (!wish) return false;
  wish();
  const std::lock_guard lock(known_.mutex);
  granted_ = number;
  if (asked_ == number) wish_ = nullptr;
  known_.wake.notify_all();
  return true;
}

// Publishes the view until no change of it is left. Unavailable: a server was lost, which has to be repaired first.
void ServerKeeper::publish_changes() {
  for (;;) {
    {
      const std::lock_guard lock(known_.mutex);
      const RosterAction::Kind next = known_.roster.next().kind;
      if (next == RosterAction::Kind::kFill) {
        fail<Unavailable>("[parameter server] a server was lost while it was to get something");
      }
      if (next != RosterAction::Kind::kPublish) return;
    }
    publish();
  }
}

void ServerKeeper::replace(std::shared_ptr<const SavedVariables> saved, int64_t next_closure) {
  transfers_.set_source(std::move(saved), next_closure);
  ask("new values", [this] {
    // Backups get the values from the primaries, once those have all of them.
    {
      const std::lock_guard lock(known_.mutex);
      known_.roster.drop_backups();
    }
    publish_changes();
    proto::View view;
    {
      const std::lock_guard lock(known_.mutex);
      view = known_.roster.view();
    }
    for (int home = 0; home < view.homes_size(); ++home) {
      const proto::View::Home& place = view.homes(home);
      (void)transfers_.fill(home, place.primary(), known_.order(place.primary_process()));
    }
    {
      const std::lock_guard lock(known_.mutex);
      known_.roster.renew();
    }
    publish_changes();
  });
}

void ServerKeeper::set_learning_rates(const std::map<std::size_t, double>& rates) {
  ask("new learning rates", [this, rates] {
    {
      const std::lock_guard lock(known_.mutex);
      for (const auto& [variable, rate] : rates) known_.roster.set_learning_rate(static_cast<uint32_t>(variable), rate);
    }
    publish_changes();
  });
}

// -- Views.

// Gives the servers a view, all at a time, and notes which of them have taken it.
void ServerKeeper::give_view(const proto::View& view) {
  struct Given {
    int server = 0;
    uint64_t process = 0;
    std::future<Frame> answer;
  };
  proto::SetViewRequest request;
  *request.mutable_view() = view;
  const Frame frame = make_frame(request);
  std::vector<Given> given;
  {
    const std::lock_guard lock(known_.mutex);
    for (const int server : known_.roster.servers())
      given.push_back({.server = server, .process = known_.roster.process(server), .answer = {}});
  }
  for (Given& each : given) each.answer = client_.start(each.server, "/ps/SetView", frame, options_.heartbeat_timeout);
  std::string why;
  for (Given& each : given) {
    try {
      (void)each.answer.get();
      const std::lock_guard lock(known_.mutex);
      known_.roster.acknowledge(each.server, each.process, view.number());
    } catch (const FailedPrecondition& error) {
      log().warn("[parameter server] {} refuses view {}: {}", KnownServers::name(each.server), view.number(),
                 error.what());
      watch_.note_refusal(each.server, each.process);
    } catch (const std::exception& error) {
      why = c10::str(KnownServers::name(each.server), " does not take view ", view.number(), ": ", error.what());
    }
  }
  if (!why.empty()) fail<Unavailable>("[parameter server] ", why);
}

// Gives the view to the servers, and tells everybody else once all that have a part in it have taken it.
void ServerKeeper::publish() {
  proto::View view;
  {
    const std::lock_guard lock(known_.mutex);
    view = known_.roster.view();
  }
  std::exception_ptr error;
  try {
    give_view(view);
  } catch (const Error&) {
    error = std::current_exception();
  }
  bool delivered = false;
  {
    const std::lock_guard lock(known_.mutex);
    known_.require_charge();
    delivered = known_.roster.is_delivered();
  }
  if (!delivered && error) std::rethrow_exception(error);
  if (!delivered) return;
  client_.set_view(view);
  events_.view(view);
  const std::lock_guard lock(known_.mutex);
  known_.roster.announced();
}

// -- Shards.

// Fills a home that no process holds.
void ServerKeeper::fill(const RosterAction& action) {
  bool started = false;
  {
    const std::lock_guard lock(known_.mutex);
    started = started_;
    if (started) {
      log().warn("[parameter server] {} has come back empty: it gets what it had at closure {}",
                 KnownServers::name(action.server), transfers_.source_closure());
    }
  }
  const int64_t from = transfers_.fill(action.home, action.server, known_.order(action.process));
  // The report comes before anybody can take the home for complete.
  if (started && !events_.restored(from)) {
    // If a checkpoint has taken the place of the source, the home is filled from that one.
    if (transfers_.source_closure() != from) return;
    events_.lost(std::make_exception_ptr(
        Unavailable("[coordinator] a parameter server was lost, and too much was done since the last checkpoint to do "
                    "it again; start again from the checkpoint, and save more often")));
  }
  const std::lock_guard lock(known_.mutex);
  known_.roster.carried_out(action);
  reported_missing_server_ = false;
}

// Lets the copy of a home go on for a moment.
void ServerKeeper::copy(const RosterAction& action) {
  int primary = 0;
  uint64_t process = 0;
  {
    const std::lock_guard lock(known_.mutex);
    primary = known_.roster.view().homes(action.home).primary();
    process = known_.roster.view().homes(action.home).primary_process();
  }
  if (!transfers_.copy(action, primary, known_.order(process))) return;
  const std::lock_guard lock(known_.mutex);
  known_.roster.carried_out(action);
}

// Reports a server that has just been found to stay away, once for each time.
void ServerKeeper::look_for_missing() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(known_.mutex);
    for (int home = 0; home < known_.roster.view().homes_size() && started_ && !reported_missing_server_; ++home) {
      const int server = known_.roster.view().homes(home).primary();
      const Liveness& alive = known_.alive[static_cast<std::size_t>(server)];
      if (known_.roster.up(server) || alive.silence(Deadline::Clock::now()) < options_.return_timeout) continue;
      reported_missing_server_ = true;
      error = std::make_exception_ptr(
          Unavailable(c10::str("[parameter server] ", KnownServers::name(server),
                               " was lost and has not come back within ", to_text(options_.return_timeout))));
    }
  }
  if (error) events_.lost(error);
}

void ServerKeeper::forget(const proto::View& view, int64_t closure) {
  proto::ForgetRequest request;
  request.set_closure(closure);
  request.mutable_order()->set_epoch(view.epoch());
  request.mutable_order()->set_view(view.number());
  for (std::size_t i = 0; i < known_.alive.size(); ++i) {
    try {
      (void)client_.call(static_cast<int>(i), "/ps/Forget", make_frame(request), options_.call_timeout);
    } catch (const Error& error) {
      // The server keeps more than it has to, or is gone.
      if (!may_pass(error)) throw;
      log().warn("{}", error.what());
    }
  }
}

void ServerKeeper::stop_servers() {
  proto::StopRequest request;
  *request.mutable_order() = known_.order();
  for (std::size_t i = 0; i < known_.alive.size(); ++i) {
    try {
      (void)client_.call(static_cast<int>(i), "/ps/Stop", make_frame(request), std::chrono::seconds(2));
    } catch (const std::exception&) {
      // The server is gone already.
    }
  }
}

}  // namespace cohort
