#include "parameter_server/coordinator/keeper.h"

#include <algorithm>

#include "base/error_text.h"
#include "base/fail.h"
#include "base/log.h"
#include "base/wait_reporting.h"
#include "cohort/cluster/cluster_spec.h"
#include "parameter_server/view.h"
#include "rpc/calls.h"

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
      servers_(static_cast<std::size_t>(catalog_->num_servers()),
               Server{.alive = Liveness(options_.heartbeat_timeout)}) {
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
  return message_in<Hello>(client_.call(server, "/ps/Hello", make_frame(request), limit));
}

std::vector<ServerKeeper::Hello> ServerKeeper::meet_all() {
  std::vector<Hello> replies(servers_.size());
  std::vector<bool> there(servers_.size());
  const auto meet = [&](const Deadline&) {
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
    return missing;
  };
  wait_reporting({.who = "[parameter server]",
                  .limit = options_.start_timeout,
                  .report_interval = options_.report_interval,
                  .pause = kPause},
                 meet);
  return replies;
}

bool ServerKeeper::start(const std::map<std::size_t, double>& rates) {
  const std::vector<Hello> hellos = meet_all();
  for (std::size_t i = 0; i < servers_.size(); ++i) note(static_cast<int>(i), hellos[i]);
  const bool adopted = adopt(hellos);
  if (!adopted) {
    place_all();
    note_rates(rates);
  }
  publish();
  try {
    while (repair()) {
    }
  } catch (const std::exception& error) {
    log().warn("[parameter server] {}; tries again", error_text(error));  // the threads do the rest
  }
  for (Server& server : servers_) server.alive.hear(SteadyClock::now());  // they are watched from now on
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { watch(static_cast<int>(i), stop); });
  }
  threads_.emplace_back([this](const std::stop_token& stop) { keep(stop); });
  return adopted;
}

// Takes over the view that the servers have of this run. Returns whether they have one.
bool ServerKeeper::adopt(const std::vector<Hello>& hellos) {
  uint64_t number = 0;
  const proto::View* latest = nullptr;
  for (const Hello& hello : hellos) {
    number = std::max(number, hello.view().number());
    const bool ours = hello.view().run() == options_.run && hello.view().number() > 0;
    if (ours && (latest == nullptr || hello.view().number() > latest->number())) latest = &hello.view();
  }
  if (latest != nullptr) {
    require_view_of(catalog_->num_servers(), *latest, "the coordinator");
    view_ = *latest;
  }
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
    servers_[i].trusted = whole ? servers_[i].alive.incarnation() : 0;
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
    of(home).trust();
  }
}

// -- What is heard of them.

void ServerKeeper::note(int server, const Hello& reply) {
  const std::lock_guard lock(mutex_);
  Server& known = of(server);
  const bool is_new = !known.alive.is(reply.incarnation());
  noted_ = noted_ || !known.up() || is_new;
  // The reply may be older than a view that the server was given since.
  known.view = is_new ? reply.view().number() : std::max(known.view, reply.view().number());
  known.alive.enter(reply.incarnation(), SteadyClock::now());
  wake_.notify_all();
}

// Notes a failed call. A server that is silent for `patience` is lost.
void ServerKeeper::note_silence(int server, milliseconds patience) {
  const std::lock_guard lock(mutex_);
  Server& known = of(server);
  if (!known.up() || known.alive.silence(SteadyClock::now()) < patience) return;
  known.alive.suspect();
  noted_ = true;
  log().warn("[parameter server] {} is lost", name(server));
  wake_.notify_all();
}

// Tells a server which work is done. A restored shard gets this knowledge with its values.
void ServerKeeper::tell_done(int server, int64_t& told) {
  const int64_t done = events_.done_below();
  if (done - told < kForgetEvery) return;
  told = done;
  proto::ForgetRequest request;
  request.set_closure(done);
  (void)client_.start(server, "/ps/Forget", make_frame(request), options_.call_timeout);
}

void ServerKeeper::watch(int server, const std::stop_token& stop) {
  const milliseconds interval = std::max(milliseconds(10), options_.heartbeat_timeout / 10);
  int64_t told = 0;
  while (!stop.stop_requested()) {
    try {
      note(server, hello(server, /*first=*/false, options_.heartbeat_timeout));
      tell_done(server, told);
    } catch (const Unavailable&) {
      note_silence(server, std::min(kRefused, options_.heartbeat_timeout));
    } catch (const Cancelled&) {
      // A new view has cancelled all calls to this server. The next call tells it.
    } catch (const std::exception&) {
      note_silence(server, options_.heartbeat_timeout);
    }
    Lock lock(mutex_);
    wake_.wait_for(lock, interval, [&] { return stop.stop_requested(); });
  }
}

bool ServerKeeper::is_up(int server) {
  const std::lock_guard lock(mutex_);
  return of(server).up();
}

bool ServerKeeper::holds(int server) {
  const std::lock_guard lock(mutex_);
  return of(server).holds();
}

}  // namespace cohort
