#include "parameter_server/keeper.h"

#include <algorithm>

#include "base/fail.h"
#include "base/log.h"
#include "parameter_server/wire/frame.h"

namespace cohort {

namespace {

namespace proto = parameter_server;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

// A server whose address refuses connections for so long has no process any more.
constexpr milliseconds kRefused(300);
constexpr milliseconds kPause(100);  // between tries

}  // namespace

ServerKeeper::ServerKeeper(std::shared_ptr<const Catalog> catalog, ServerClient& client, const KeeperOptions& options,
                           KeeperEvents events)
    : catalog_(std::move(catalog)),
      client_(client),
      options_(options),
      events_(std::move(events)),
      servers_(static_cast<std::size_t>(catalog_->num_servers())) {
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
  if (first) {
    request.set_catalog(catalog_->description());
    request.set_inventory(true);
  }
  Hello reply;
  FrameReader(client_.call(server, "/ps/Hello", make_frame(request), limit), reply).finish();
  return reply;
}

std::vector<ServerKeeper::Hello> ServerKeeper::meet_all() {
  const Deadline deadline(options_.start_timeout);
  auto report = SteadyClock::now() + options_.report_interval;
  std::vector<Hello> replies(servers_.size());
  std::vector<bool> there(servers_.size());
  for (;;) {
    std::string missing;
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      if (there[i]) continue;
      try {
        replies[i] = hello(static_cast<int>(i), /*first=*/true, options_.heartbeat_timeout);
        there[i] = true;
      } catch (const Unavailable&) {
      } catch (const DeadlineExceeded&) {
      }
      if (!there[i]) missing += (missing.empty() ? "" : ", ") + name(static_cast<int>(i));
    }
    if (missing.empty()) return replies;
    if (deadline.passed()) {
      fail<DeadlineExceeded>("[parameter server] waited ", to_text(options_.start_timeout), " for ", missing);
    }
    if (SteadyClock::now() >= report) {
      log().warn("[parameter server] waits for {}", missing);
      report = SteadyClock::now() + options_.report_interval;
    }
    std::this_thread::sleep_for(kPause);
  }
}

bool ServerKeeper::start() {
  const std::vector<Hello> hellos = meet_all();
  for (std::size_t i = 0; i < servers_.size(); ++i) note(static_cast<int>(i), hellos[i]);
  const bool adopted = adopt(hellos);
  if (!adopted) place_all();
  publish();
  try {
    while (repair()) {
    }
  } catch (const std::exception& error) {
    log().warn("[parameter server] {}; tries again", error.what());  // from here on the threads' work
  }
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { watch(static_cast<int>(i), stop); });
  }
  threads_.emplace_back([this](const std::stop_token& stop) { keep(stop); });
  return adopted;
}

// The view of this run that the servers have, if they do.
bool ServerKeeper::adopt(const std::vector<Hello>& hellos) {
  uint64_t number = 0;
  const proto::View* latest = nullptr;
  for (const Hello& hello : hellos) {
    number = std::max(number, hello.view().number());
    const bool ours = hello.view().run() == options_.run && hello.view().number() > 0;
    if (ours && (latest == nullptr || hello.view().number() > latest->number())) latest = &hello.view();
  }
  if (latest != nullptr) view_ = *latest;
  view_.set_number(number);
  view_.set_run(options_.run);
  if (latest == nullptr) return false;
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    const auto& shards = hellos[i].shards();
    bool whole = true;
    for (std::size_t shard = 0; shard < catalog_->shards().size(); ++shard) {
      const proto::View::Home& home = view_.homes(catalog_->shards()[shard].home);
      const auto me = static_cast<int>(i);
      const bool wanted = home.primary() == me || home.backup() == me;
      whole = whole && (!wanted || std::find(shards.begin(), shards.end(), shard) != shards.end());
    }
    servers_[i].trusted = whole ? servers_[i].incarnation : 0;
  }
  return true;
}

void ServerKeeper::place_all() {
  view_.clear_homes();
  for (int home = 0; home < catalog_->num_servers(); ++home) {
    proto::View::Home& place_of = *view_.add_homes();
    place_of.set_primary(home);
    place_of.set_backup(-1);
    place_of.set_joining(-1);
    place(home, home);
    servers_[static_cast<std::size_t>(home)].trusted = servers_[static_cast<std::size_t>(home)].incarnation;
  }
}

// -- What is heard of them.

void ServerKeeper::note(int server, const Hello& reply) {
  const std::lock_guard lock(mutex_);
  Server& known = servers_[static_cast<std::size_t>(server)];
  const bool is_new = known.incarnation != reply.incarnation();
  noted_ = noted_ || !known.up || is_new;
  known.up = true;
  known.incarnation = reply.incarnation();
  // What it said may be older than what it was told since.
  known.view = is_new ? reply.view().number() : std::max(known.view, reply.view().number());
  known.heard = SteadyClock::now();
  wake_.notify_all();
}

void ServerKeeper::note_silence(int server) {
  const std::lock_guard lock(mutex_);
  Server& known = servers_[static_cast<std::size_t>(server)];
  if (!known.up) return;
  known.up = false;
  known.silent_since = known.heard;
  noted_ = true;
  log().warn("[parameter server] {} is lost", name(server));
  wake_.notify_all();
}

void ServerKeeper::watch(int server, const std::stop_token& stop) {
  const milliseconds interval = std::max(milliseconds(10), options_.heartbeat_timeout / 10);
  SteadyClock::time_point heard = SteadyClock::now();
  while (!stop.stop_requested()) {
    try {
      note(server, hello(server, /*first=*/false, options_.heartbeat_timeout));
      heard = SteadyClock::now();
    } catch (const Unavailable&) {
      if (SteadyClock::now() - heard > std::min(kRefused, options_.heartbeat_timeout)) note_silence(server);
    } catch (const Cancelled&) {
      // A new view has cancelled all calls to this server; the next one tells.
    } catch (const std::exception&) {
      if (SteadyClock::now() - heard >= options_.heartbeat_timeout) note_silence(server);
    }
    Lock lock(mutex_);
    wake_.wait_for(lock, interval, [&] { return stop.stop_requested(); });
  }
}

bool ServerKeeper::is_up(int server) {
  const std::lock_guard lock(mutex_);
  return servers_[static_cast<std::size_t>(server)].up;
}

bool ServerKeeper::holds(int server) {
  const std::lock_guard lock(mutex_);
  const Server& known = servers_[static_cast<std::size_t>(server)];
  return known.up && known.incarnation == known.trusted;
}

// -- What is done about it.

void ServerKeeper::keep(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      Lock lock(mutex_);
      wake_.wait_for(lock, kPause, [&] { return noted_ || stop.stop_requested(); });
      noted_ = false;
    }
    try {
      while (!stop.stop_requested() && repair()) {
      }
    } catch (const std::exception& error) {
      // Another server was lost meanwhile, or this one again: what is heard next decides.
      if (!stop.stop_requested()) log().warn("[parameter server] {}; tries again", error.what());
      std::this_thread::sleep_for(kPause);
    }
  }
}

// One step; whether there was something to do.
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
      behind = behind || (server.up && server.incarnation == server.trusted && server.view < view_.number());
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

// Homes that nobody has any more.
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
    const std::lock_guard lock(mutex_);
    const auto silent = SteadyClock::now() - servers_[static_cast<std::size_t>(server)].silent_since;
    if (told_ || silent < options_.return_timeout) continue;
    told_ = true;
    events_.lost(std::make_exception_ptr(
        Unavailable(c10::str("[parameter server] ", name(server), " was lost and has not come back within ",
                             to_text(options_.return_timeout)))));
  }
  if (filled.empty()) return false;
  {
    const std::lock_guard lock(mutex_);
    for (const int server : filled) {
      servers_[static_cast<std::size_t>(server)].trusted = servers_[static_cast<std::size_t>(server)].incarnation;
    }
    told_ = false;
  }
  // Before anybody can take it for complete.
  events_.restored();
  publish();
  return true;
}

// In place of the backup that there is, if there is one.
void ServerKeeper::join(int home, int server) {
  proto::View::Home& place_of = *view_.mutable_homes(home);
  place_of.set_joining(server);
  {
    // Whatever process it is now, from here on it has what the view says.
    const std::lock_guard lock(mutex_);
    servers_[static_cast<std::size_t>(server)].trusted = servers_[static_cast<std::size_t>(server)].incarnation;
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

// Who is to be given a home's shards; -1: nobody. At its best a home is on the server of its number, with the next one
// as the backup; while one of them is away another one takes its part.
int ServerKeeper::candidate(int home) {
  const proto::View::Home& place_of = view_.homes(home);
  if (!holds(place_of.primary())) return -1;
  if (place_of.joining() >= 0) return place_of.joining();  // an attempt that failed
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

// A server that was away serves its own home again.
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
      // It is gone already.
    }
  }
}

}  // namespace cohort
