// The part of ServerKeeper that repairs: it gives the shards of lost servers to others, and fills servers that come
// back.
#include <algorithm>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "parameter_server/coordinator/keeper.h"
#include "rpc/calls.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

constexpr std::chrono::milliseconds kRetryPause(100);  // between two attempts
constexpr std::chrono::milliseconds kCopyWait(500);    // for which a server holds the question how far a copy is

}  // namespace

void ServerKeeper::keep(const std::stop_token& stop) {
  using Kind = RosterAction::Kind;
  while (!stop.stop_requested()) {
    {
      Lock lock(mutex_);
      wake_.wait_for(lock, kRetryPause, [&] { return noted_ || wish_ || stop.stop_requested(); });
      noted_ = false;
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
    const std::lock_guard lock(mutex_);
    if (fenced_) return RosterAction::Kind::kNone;
    action = roster_.next();
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
  Lock lock(mutex_);
  wish_ = std::move(wish);
  const uint64_t mine = ++asked_;
  wake_.notify_all();
  (void)wake_.wait_for(lock, options_.return_timeout, [&] { return granted_ >= mine || fenced_; });
  if (granted_ >= mine) return;
  wish_ = nullptr;
  require_charge();
  fail<DeadlineExceeded>("[parameter server] ", what, " could not be given to all servers within ",
                         to_text(options_.return_timeout));
}

// Carries out a request when nothing has to be repaired. The request stays if a server is lost meanwhile.
bool ServerKeeper::grant() {
  std::function<void()> wish;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (fenced_) return false;
    wish = wish_;
    number = asked_;
  }
  if (!wish) return false;
  wish();
  const std::lock_guard lock(mutex_);
  granted_ = number;
  if (asked_ == number) wish_ = nullptr;
  wake_.notify_all();
  return true;
}

// Publishes the view until no change of it is left. Unavailable: a server was lost, which has to be repaired first.
void ServerKeeper::publish_changes() {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const RosterAction::Kind next = roster_.next().kind;
      if (next == RosterAction::Kind::kFill) {
        fail<Unavailable>("[parameter server] a server was lost while it was to get something");
      }
      if (next != RosterAction::Kind::kPublish) return;
    }
    publish();
  }
}

void ServerKeeper::replace(std::shared_ptr<const SavedVariables> saved, int64_t next_closure) {
  set_source(std::move(saved), next_closure);
  ask("new values", [this] {
    // Backups get the values from the primaries, once those have all of them.
    {
      const std::lock_guard lock(mutex_);
      roster_.drop_backups();
    }
    publish_changes();
    proto::View view;
    {
      const std::lock_guard lock(mutex_);
      view = roster_.view();
    }
    for (int home = 0; home < view.homes_size(); ++home) {
      (void)place(home, view.homes(home).primary(), view.homes(home).primary_process());
    }
    {
      const std::lock_guard lock(mutex_);
      roster_.renew();
    }
    publish_changes();
  });
}

void ServerKeeper::set_learning_rates(const std::map<std::size_t, double>& rates) {
  ask("new learning rates", [this, rates] {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [variable, rate] : rates) roster_.set_learning_rate(static_cast<uint32_t>(variable), rate);
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
    const std::lock_guard lock(mutex_);
    for (const int server : roster_.servers())
      given.push_back({.server = server, .process = roster_.process(server), .answer = {}});
  }
  for (Given& each : given) each.answer = client_.start(each.server, "/ps/SetView", frame, options_.heartbeat_timeout);
  std::string why;
  for (Given& each : given) {
    try {
      (void)each.answer.get();
      const std::lock_guard lock(mutex_);
      roster_.acknowledge(each.server, each.process, view.number());
    } catch (const FailedPrecondition& error) {
      log().warn("[parameter server] {} refuses view {}: {}", name(each.server), view.number(), error.what());
      note_refusal(each.server, each.process);
    } catch (const std::exception& error) {
      why = c10::str(name(each.server), " does not take view ", view.number(), ": ", error.what());
    }
  }
  if (!why.empty()) fail<Unavailable>("[parameter server] ", why);
}

// Gives the view to the servers, and tells everybody else once all that have a part in it have taken it.
void ServerKeeper::publish() {
  proto::View view;
  {
    const std::lock_guard lock(mutex_);
    view = roster_.view();
  }
  std::exception_ptr error;
  try {
    give_view(view);
  } catch (const Error&) {
    error = std::current_exception();
  }
  bool delivered = false;
  {
    const std::lock_guard lock(mutex_);
    require_charge();
    delivered = roster_.is_delivered();
  }
  if (!delivered && error) std::rethrow_exception(error);
  if (!delivered) return;
  client_.set_view(view);
  events_.view(view);
  const std::lock_guard lock(mutex_);
  roster_.announced();
}

// -- Shards.

// Gives the server's process the shards of a home. Returns the closure from which work is not contained in them.
int64_t ServerKeeper::place(int home, int server, uint64_t process) {
  std::shared_ptr<const SavedVariables> source;
  int64_t next_closure = 0;
  {
    const std::lock_guard lock(mutex_);
    source = source_;
    next_closure = source_closure_;
  }
  if (!source) fail<FailedPrecondition>("[parameter server] nothing was set to begin with");
  proto::Order fill_order = order(process);
  fill_order.set_serial(++fills_);
  for (const std::size_t shard : catalog_->shards_at(home)) {
    install_shard(client_, *catalog_, {.shard = shard, .server = server, .order = fill_order}, *source, next_closure,
                  options_.call_timeout);
  }
  return next_closure;
}

// Fills a home that no process holds.
void ServerKeeper::fill(const RosterAction& action) {
  bool started = false;
  {
    const std::lock_guard lock(mutex_);
    started = started_;
    if (started) {
      log().warn("[parameter server] {} has come back empty: it gets what it had at closure {}", name(action.server),
                 source_closure_);
    }
  }
  const int64_t from = place(action.home, action.server, action.process);
  // The report comes before anybody can take the home for complete.
  if (started && !events_.restored(from)) {
    {
      const std::lock_guard lock(mutex_);
      if (source_closure_ != from)
        return;  // a checkpoint has taken the place of the source: it is filled from that one
    }
    events_.lost(std::make_exception_ptr(
        Unavailable("[coordinator] a parameter server was lost, and too much was done since the last checkpoint to do "
                    "it again; start again from the checkpoint, and save more often")));
  }
  const std::lock_guard lock(mutex_);
  roster_.carried_out(action);
  reported_missing_server_ = false;
}

// Lets the copy of a home go on for a moment. DeadlineExceeded: nothing of it was sent for options.call_timeout.
void ServerKeeper::copy(const RosterAction& action) {
  if (copy_ != action) {
    copy_ = action;
    copied_ = 0;
    copy_until_.emplace(options_.call_timeout);
  }
  int primary = 0;
  uint64_t process = 0;
  {
    const std::lock_guard lock(mutex_);
    primary = roster_.view().homes(action.home).primary();
    process = roster_.view().homes(action.home).primary_process();
  }
  proto::CopyRequest request;
  request.set_home(action.home);
  request.set_term(action.term);
  request.set_wait_ms(static_cast<uint32_t>(std::min(options_.heartbeat_timeout, kCopyWait).count()));
  *request.mutable_order() = order(process);
  const auto reply = message_in<proto::CopyReply>(
      client_.call(primary, "/ps/Copy", make_frame(request), options_.heartbeat_timeout + kCopyWait));
  if (reply.done()) {
    const std::lock_guard lock(mutex_);
    roster_.carried_out(action);
    return;
  }
  if (reply.bytes() != copied_) {
    copied_ = reply.bytes();
    copy_until_.emplace(options_.call_timeout);
  }
  if (!copy_until_->passed()) return;
  copy_ = {};
  fail<DeadlineExceeded>("[parameter server] ", name(primary), " has not sent anything to ", name(action.server),
                         " for ", to_text(options_.call_timeout), ", after ", copied_, " bytes of home ", action.home);
}

// Reports a server that has just been found to stay away, once for each time.
void ServerKeeper::look_for_missing() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    for (int home = 0; home < roster_.view().homes_size() && started_ && !reported_missing_server_; ++home) {
      const int server = roster_.view().homes(home).primary();
      const Liveness& alive = alive_[static_cast<std::size_t>(server)];
      if (roster_.up(server) || alive.silence(Deadline::Clock::now()) < options_.return_timeout) continue;
      reported_missing_server_ = true;
      error = std::make_exception_ptr(
          Unavailable(c10::str("[parameter server] ", name(server), " was lost and has not come back within ",
                               to_text(options_.return_timeout))));
    }
  }
  if (error) events_.lost(error);
}

void ServerKeeper::stop_servers() {
  proto::StopRequest request;
  *request.mutable_order() = order();
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    try {
      (void)client_.call(static_cast<int>(i), "/ps/Stop", make_frame(request), std::chrono::seconds(2));
    } catch (const std::exception&) {
      // The server is gone already.
    }
  }
}

}  // namespace cohort
