// The part of ServerKeeper that repairs: it gives the shards of lost servers to others, and fills servers that come
// back.
#include <algorithm>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "parameter_server/coordinator/keeper.h"
#include "rpc/frame.h"

namespace cohort {

namespace {

namespace proto = parameter_server;

constexpr std::chrono::milliseconds kRetryPause(100);  // between two attempts

}  // namespace

void ServerKeeper::keep(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      Lock lock(mutex_);
      wake_.wait_for(lock, kRetryPause, [&] { return noted_ || wish_ || stop.stop_requested(); });
      noted_ = false;
    }
    try {
      while (!stop.stop_requested() && (repair() || grant())) {
      }
    } catch (const std::exception& error) {
      // Another server was lost meanwhile, or this one again. The next news decide.
      if (!stop.stop_requested()) log().warn("[parameter server] {}; tries again", error_text(error));
      std::this_thread::sleep_for(kRetryPause);
    }
  }
}

// -- What the coordinator wants.

void ServerKeeper::ask(const char* what, std::function<void()> wish) {
  Lock lock(mutex_);
  wish_ = std::move(wish);
  const uint64_t mine = ++asked_;
  wake_.notify_all();
  if (wake_.wait_for(lock, options_.return_timeout, [&] { return granted_ >= mine; })) return;
  wish_ = nullptr;
  fail<DeadlineExceeded>("[parameter server] ", what, " could not be given to all servers within ",
                         to_text(options_.return_timeout));
}

// Carries out a request when nothing has to be repaired. The request stays if a server is lost meanwhile.
bool ServerKeeper::grant() {
  std::function<void()> wish;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
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

void ServerKeeper::replace(std::shared_ptr<const SavedVariables> saved, int64_t next_closure) {
  set_source(std::move(saved), next_closure);
  ask("new values", [this] {
    // Backups get the values from the primaries, once those have all of them.
    for (proto::View::Home& home : *view_.mutable_homes()) {
      home.set_backup(-1);
      home.set_joining(-1);
    }
    for (int home = 0; home < view_.homes_size(); ++home) place(home, view_.homes(home).primary());
    publish();
  });
}

void ServerKeeper::note_rates(const std::map<std::size_t, double>& rates) {
  for (const auto& [variable, rate] : rates) {
    auto& known = *view_.mutable_rates();
    const auto has = [number = variable](const auto& each) { return each.variable() == number; };
    const auto found = std::find_if(known.begin(), known.end(), has);
    proto::View::Rate& entry = found == known.end() ? *view_.add_rates() : *found;
    entry.set_variable(static_cast<uint32_t>(variable));
    entry.set_learning_rate(rate);
  }
}

void ServerKeeper::set_learning_rates(const std::map<std::size_t, double>& rates) {
  ask("new learning rates", [this, rates] {
    note_rates(rates);
    publish();
  });
}

// -- What is lost and comes back.

// Does one step of repair. Returns whether there was something to do.
bool ServerKeeper::repair() {
  return drop_lost() || refill() || add_backups() || go_home();
}

bool ServerKeeper::drop_lost() {
  bool changed = false;
  bool behind = false;
  for (proto::View::Home& home : *view_.mutable_homes()) {
    const int backup = home.backup();
    if (home.joining() >= 0 && !holds(home.joining())) {
      home.set_joining(-1);
      changed = true;
    }
    if (backup >= 0 && !holds(backup)) {
      home.set_backup(-1);
      changed = true;
    } else if (backup >= 0 && !holds(home.primary())) {
      log().warn("[parameter server] {} takes over from {}", name(backup), name(home.primary()));
      home.set_primary(backup);
      home.set_backup(-1);
      changed = true;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    for (const Server& server : servers_) {
      behind = behind || (server.holds() && server.view < view_.number());
    }
  }
  if (changed || behind) publish();
  return changed;
}

void ServerKeeper::place(int home, int server) {
  std::shared_ptr<const SavedVariables> source;
  int64_t next_closure = 0;
  {
    const std::lock_guard lock(mutex_);
    source = source_;
    next_closure = source_closure_;
  }
  if (!source) fail<FailedPrecondition>("[parameter server] nothing was set to begin with");
  for (const std::size_t shard : catalog_->shards_at(home)) {
    install_shard(client_, *catalog_, shard, server, *source, next_closure, options_.call_timeout);
  }
}

// Returns whether a server has just been found to stay away, once for each time.
bool ServerKeeper::away_for_good(int server) {
  const std::lock_guard lock(mutex_);
  if (reported_missing_server_ || of(server).alive.silence(std::chrono::steady_clock::now()) < options_.return_timeout)
    return false;
  reported_missing_server_ = true;
  return true;
}

// Fills the homes that no server has any more. Returns whether there were any.
bool ServerKeeper::refill() {
  std::vector<int> filled;
  for (int home = 0; home < view_.homes_size(); ++home) {
    const int server = view_.homes(home).primary();
    if (holds(server)) continue;
    if (is_up(server)) {
      log().warn("[parameter server] {} has come back empty: it gets what it had at closure {}", name(server),
                 source_closure_);
      place(home, server);
      filled.push_back(server);
      continue;
    }
    if (away_for_good(server)) {
      events_.lost(std::make_exception_ptr(
          Unavailable(c10::str("[parameter server] ", name(server), " was lost and has not come back within ",
                               to_text(options_.return_timeout)))));
    }
  }
  if (filled.empty()) return false;
  {
    const std::lock_guard lock(mutex_);
    for (const int server : filled) of(server).trust();
    reported_missing_server_ = false;
  }
  // The report comes before anybody can take the home for complete.
  events_.restored();
  publish();
  return true;
}

// Makes the server the backup of a home, in place of its present backup.
void ServerKeeper::join(int home, int server) {
  proto::View::Home& place_of = *view_.mutable_homes(home);
  place_of.set_joining(server);
  {
    // From now on the server's present process is trusted to have the shards of the view.
    const std::lock_guard lock(mutex_);
    of(server).trust();
  }
  publish();
  proto::CopyRequest request;
  for (const std::size_t shard : catalog_->shards_at(home)) request.add_shards(static_cast<uint32_t>(shard));
  request.set_destination(server);
  (void)client_.call(place_of.primary(), "/ps/Copy", make_frame(request), options_.call_timeout);
  place_of.set_backup(server);
  place_of.set_joining(-1);
  publish();
}

// Returns the server that gets the shards of a home, or -1 for none. At its best a home is on the server of its number,
// with the next one as the backup; while one of them is away another one takes its part.
int ServerKeeper::candidate(int home) {
  const proto::View::Home& place_of = view_.homes(home);
  if (!holds(place_of.primary())) return -1;
  if (place_of.joining() >= 0) return place_of.joining();  // an earlier attempt failed
  const int count = view_.homes_size();
  for (int i = 0; i < count; ++i) {
    const int server = (home + i) % count;
    if (server == place_of.primary()) continue;
    if (server == place_of.backup()) return -1;
    if (is_up(server)) return server;
  }
  return -1;
}

bool ServerKeeper::add_backups() {
  if (options_.replicas < 2) return false;
  for (int home = 0; home < view_.homes_size(); ++home) {
    const int server = candidate(home);
    if (server < 0) continue;
    join(home, server);
    return true;
  }
  return false;
}

// Lets a server that was away serve its own home again. Returns whether there was one.
bool ServerKeeper::go_home() {
  for (int home = 0; home < view_.homes_size(); ++home) {
    proto::View::Home& place_of = *view_.mutable_homes(home);
    if (place_of.backup() != home || !holds(home)) continue;
    place_of.set_backup(place_of.primary());
    place_of.set_primary(home);
    publish();
    return true;
  }
  return false;
}

void ServerKeeper::publish() {
  view_.set_number(view_.number() + 1);
  proto::SetViewRequest request;
  *request.mutable_view() = view_;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    if (!is_up(static_cast<int>(i))) continue;
    try {
      (void)client_.call(static_cast<int>(i), "/ps/SetView", make_frame(request), options_.heartbeat_timeout);
      const std::lock_guard lock(mutex_);
      servers_[i].view = view_.number();
    } catch (const std::exception& error) {
      log().warn("[parameter server] {} does not take view {}: {}", name(static_cast<int>(i)), view_.number(),
                 error.what());
    }
  }
  client_.set_view(view_);
  events_.view(view_);
}

void ServerKeeper::stop_servers() {
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    try {
      (void)client_.call(static_cast<int>(i), "/ps/Stop", make_frame(proto::StopRequest()), std::chrono::seconds(2));
    } catch (const std::exception&) {
      // The server is gone already.
    }
  }
}

}  // namespace cohort
