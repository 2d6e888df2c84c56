// SimChief: the coordinator of the simulation. What is to be done about servers is decided by the library's Roster, and
// about work by its ClosureQueue. The order of events in between is that of ServerKeeper, Coordinator and Dispatcher.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/server.h"
#include "wings/parameter_server/coordinator/closure_queue.h"
#include "wings/parameter_server/coordinator/roster.h"

namespace cohort::simulation {

constexpr int64_t kBatch = 8;      // closures between two moments at which the chief may save
constexpr int64_t kSilence = 400;  // after which a server or a worker is lost

// What survives a chief.
struct Disk {
  uint64_t epoch = 0;                                  // the latest one that was claimed
  std::map<int64_t, std::vector<Counts>> checkpoints;  // the counts of all homes before a closure
};

struct ChiefOptions {
  int node = 0;
  int replicas = 1;
  Consistency consistency = {};
};

class SimChief {
 public:
  using Respond = World::Respond;
  // Is called when something is being mended, which is when the next thing should go wrong.
  using OnRecovery = std::function<void()>;

  SimChief(World& world, SimServer::Fleet& fleet, Disk& disk, const ChiefOptions& options, OnRecovery on_recovery)
      : world_(world),
        fleet_(fleet),
        disk_(disk),
        options_(options),
        on_recovery_(std::move(on_recovery)),
        has_begun_before_(disk.epoch > 0),
        roster_({.servers = kHomes, .replicas = options.replicas, .run = 1}),
        queue_({.consistency = options.consistency}),
        begun_at_(world.now()),
        source_(disk.checkpoints.rbegin()->second),
        source_next_(disk.checkpoints.rbegin()->first),
        scheduled_(source_next_) {
    queue_.begin_at(source_next_);
    world_.note("a chief begins on node ", options_.node, " at closure ", source_next_);
    tick();
    for (int server = 0; server < kHomes; ++server) greet(server);
  }

  void kill() {
    alive_ = false;
    world_.note("the chief of epoch ", epoch_, " is killed");
  }
  bool alive() const { return alive_ && !fenced_; }
  int node() const { return options_.node; }
  // Returns whether the result was read, and all that had to be repeated since then is done.
  bool is_done() { return !result_.empty() && queue_.done(); }
  const Roster& roster() const { return roster_; }

  // -- Calls of workers.

  struct Work {
    std::optional<Closure> closure;
    proto::View view;
  };
  struct Finished {
    int64_t closure = 0;
    uint64_t attempt = 0;
  };
  void join(int worker, uint64_t process, const Respond& respond) {
    if (!alive()) return;
    const uint64_t session = ++sessions_;
    workers_[worker] = {.process = process, .session = session, .heard = world_.now()};
    // The queue hears of it on another thread than of losses.
    later(world_.between(0, 30), [this, worker, session] { queue_.add_worker(worker, session); });
    respond({.ok = true, .value = Work{.closure = {}, .view = view_}});
  }
  void beat(int worker, uint64_t process, const Respond& respond) {
    if (!alive()) return;
    hear(worker, process);
    respond({.ok = true, .value = Work{.closure = {}, .view = view_}});
  }
  // A worker that has nothing asks for work, and tells what it has finished. `after_loss`: an answer did not arrive.
  void next(int worker, uint64_t process, const std::optional<Finished>& finished, bool after_loss,
            const Respond& respond) {
    if (!alive()) return;
    hear(worker, process);
    if (finished) queue_.finish(worker, finished->closure, {}, finished->attempt);
    if (after_loss) queue_.keep_only(worker, {});
    if (respond.cancelled()) return;
    respond({.ok = true, .value = Work{.closure = queue_.take(worker), .view = view_}});
  }

 private:
  struct Worker {
    uint64_t process = 0;
    uint64_t session = 0;
    int64_t heard = 0;
  };

  // Lets something happen if this chief still lives then.
  void later(int64_t delay, const std::function<void()>& action) {
    world_.at(node(), delay, [this, action] {
      if (alive()) action();
    });
  }
  template <typename Handler>
  void call(int server, const Handler& handler, const World::Done& done, int64_t limit = kServerCall) {
    SimServer& to = *fleet_[static_cast<std::size_t>(server)];
    world_.call(
        node(), to.node(), limit, [&to, handler](const Respond& respond) { handler(to, respond); },
        [this, done](const Answer& answer) {
          if (alive()) done(answer);
        });
  }
  // Writes to the disk, which may be slow. What a chief that is killed was writing is lost.
  void write(const std::function<void()>& change) {
    constexpr int kSlowPercent = 25;
    const bool slow = !world_.is_calm() && world_.chance(kSlowPercent);
    later(slow ? world_.between(300, 3000) : world_.between(1, 10), change);
  }
  proto::Order order(uint64_t process = 0) const {
    proto::Order order;
    order.set_epoch(epoch_);
    order.set_view(roster_.view().number());
    order.set_process(process);
    return order;
  }
  void hear(int worker, uint64_t process) {
    const auto known = workers_.find(worker);
    if (known == workers_.end() || known->second.process != process) fail<FailedPrecondition>("join first");
    known->second.heard = world_.now();
  }

  // -- Servers.

  void greet(int server) {
    call(
        server, [](SimServer& to, const Respond& respond) { to.hello(respond); },
        [this, server](const Answer& answer) {
          if (answer.ok) {
            note(server, std::any_cast<SimServer::Hello>(answer.value));
          } else if (roster_.up(server) && world_.now() - heard_.at(server) > kSilence) {
            world_.note("chief ", epoch_, ": ps ", server, " is lost");
            roster_.lose(server);
          }
          later(50, [this, server] { greet(server); });
        },
        /*limit=*/100);
  }
  void note(int server, const SimServer::Hello& hello) {
    known_epoch_ = std::max(known_epoch_, hello.epoch);
    if (epoch_ > 0 && hello.epoch > epoch_) {
      world_.note("chief ", epoch_, " finds epoch ", hello.epoch);
      fenced_ = true;
    }
    heard_[server] = world_.now();
    roster_.enter(server, hello.process);
  }

  void tick() {
    later(20, [this] { tick(); });
    drop_lost_workers();
    if (epoch_ == 0) return begin();
    if (!busy_) step();
    program();
  }
  void begin() {
    const bool waited = world_.now() - begun_at_ >= kSilence;
    if (busy_ || !roster_.missing(/*one_is_enough=*/has_begun_before_ && waited).empty()) return;
    busy_ = true;
    write([this] {
      disk_.epoch = std::max(disk_.epoch, known_epoch_) + 1;
      later(world_.between(0, 50), [this, epoch = disk_.epoch] {
        epoch_ = epoch;
        roster_.begin(epoch);
        busy_ = false;
      });
    });
  }

  void step() {
    using Kind = RosterAction::Kind;
    const RosterAction action = roster_.next();
    if (action.kind == Kind::kPublish) publish();
    if (action.kind == Kind::kFill) fill(action);
    if (action.kind == Kind::kCopy) copy(action);
    if (action.kind == Kind::kFill || action.kind == Kind::kCopy) on_recovery_();
    bool all = action.kind == Kind::kNone || action.kind == Kind::kCopy;
    for (int home = 0; home < kHomes; ++home) all = all && roster_.served(home);
    started_ = started_ || all;
  }
  void publish() {
    busy_ = true;
    const proto::View view = roster_.view();
    const auto left = std::make_shared<std::size_t>(1);
    const auto end_one = [this, left, view] {
      if (--*left > 0) return;
      busy_ = false;
      if (!roster_.is_delivered()) return;
      view_ = view;
      roster_.announced();
      world_.note("chief ", epoch_, ": ", view.ShortDebugString());
    };
    for (const int server : roster_.servers()) {
      ++*left;
      call(
          server, [view](SimServer& to, const Respond& respond) { to.set_view(view, respond); },
          [this, server, process = roster_.process(server), view, end_one](const Answer& answer) {
            if (answer.ok) roster_.acknowledge(server, process, view.number());
            if (answer.refused) roster_.distrust(server, process);
            end_one();
          });
    }
    end_one();
  }
  void fill(const RosterAction& action) {
    busy_ = true;
    const int64_t from = source_next_;
    proto::Order fill_order = order(action.process);
    fill_order.set_serial(++fills_);
    call(
        action.server,
        [fill_order, action, from, counts = source_[static_cast<std::size_t>(action.home)]](
            SimServer& to, const Respond& respond) { to.fill(fill_order, action.home, counts, from, respond); },
        [this, action, from](const Answer& answer) {
          busy_ = false;
          if (!answer.ok) return;
          world_.note("chief ", epoch_, ": home ", action.home, " is filled from closure ", from);
          if (started_ && !queue_.replay(from)) {
            if (source_next_ == from) world_.violate("work was forgotten that has to be repeated");
            return;
          }
          roster_.carried_out(action);
        });
  }
  void copy(const RosterAction& action) {
    busy_ = true;
    const proto::View::Home home = roster_.view().homes(action.home);
    call(
        home.primary(),
        [copy_order = order(home.primary_process()), action](SimServer& to, const Respond& respond) {
          to.copy(copy_order, action.home, action.term, respond);
        },
        [this, action](const Answer& answer) {
          busy_ = false;
          if (answer.ok) roster_.carried_out(action);
        },
        4 * kServerCall);
  }
  void forget(const proto::Order& forget_order, int64_t closure) {
    for (int server = 0; server < kHomes; ++server) {
      call(
          server,
          [forget_order, closure](SimServer& to, const Respond& /*respond*/) { to.forget(forget_order, closure); },
          [](const Answer&) {});
    }
  }

  // -- Work.

  void drop_lost_workers() {
    for (auto worker = workers_.begin(); worker != workers_.end();) {
      if (world_.now() - worker->second.heard < kSilence) {
        ++worker;
        continue;
      }
      later(world_.between(0, 30),
            [this, index = worker->first, session = worker->second.session] { queue_.lose_worker(index, session); });
      worker = workers_.erase(worker);
    }
  }
  // Does what a user's program does: it schedules a batch, joins, saves now and then, and reads the result.
  void program() {
    constexpr int kForgetPercent = 10;
    constexpr int kSavePercent = 60;
    if (world_.chance(kForgetPercent)) {
      const proto::Order now = order();
      forget(now, queue_.done_below());
    }
    if (!started_ || saving_ || !result_.empty() || !queue_.done()) return;
    const bool over = scheduled_ == kClosures;
    if (over || (scheduled_ > source_next_ && world_.chance(kSavePercent))) return collect(over);
    for (int64_t i = 0; i < kBatch && scheduled_ < kClosures; ++i, ++scheduled_) (void)queue_.schedule("step", {{}});
  }
  void collect(bool over) {
    saving_ = true;
    const proto::View view = view_;
    proto::Order state_order = order();
    state_order.set_view(view.number());
    const auto counts = std::make_shared<std::vector<Counts>>(kHomes);
    const auto left = std::make_shared<int>(kHomes);
    for (int home = 0; home < kHomes; ++home) {
      call(
          view.homes(home).primary(),
          [state_order, home](SimServer& to, const Respond& respond) { to.state(state_order, home, respond); },
          [this, home, counts, left, view, over](const Answer& answer) {
            if (answer.ok) (*counts)[static_cast<std::size_t>(home)] = std::any_cast<Counts>(answer.value);
            if (--*left > 0) return;
            const bool whole =
                std::all_of(counts->begin(), counts->end(), [](const Counts& each) { return each.defined(); });
            if (whole && queue_.done() && view.number() == view_.number()) {
              require_exact(*counts);
              if (!over) return save(*counts, view);
              result_ = *counts;
            }
            saving_ = false;
          });
    }
  }
  // What is collected has every closure until now once, and nothing else.
  void require_exact(const std::vector<Counts>& counts) {
    Counts wanted = no_counts();
    wanted.narrow(0, 0, queue_.next_id()).fill_(1);
    for (int home = 0; home < kHomes; ++home) {
      const Counts& each = counts[static_cast<std::size_t>(home)];
      if (torch::equal(each, wanted)) continue;
      for (int64_t closure = 0; closure < kClosures; ++closure) {
        if (each[closure].item<int64_t>() == wanted[closure].item<int64_t>()) continue;
        world_.violate("before closure ", queue_.next_id(), " home ", home, " has applied closure ", closure, " ",
                       each[closure].item<int64_t>(), " times, wanted ", wanted[closure].item<int64_t>());
      }
    }
  }
  void save(const std::vector<Counts>& counts, const proto::View& view) {
    on_recovery_();
    const int64_t next = queue_.next_id();
    write([this, counts, next, view] {
      disk_.checkpoints[next] = counts;
      world_.note("chief ", epoch_, ": a checkpoint has everything before ", next);
      saving_ = false;
      source_ = counts;
      source_next_ = next;
      queue_.forget_before(next);
      proto::Order then = order();
      then.set_view(view.number());
      forget(then, next);
    });
  }

  World& world_;
  SimServer::Fleet& fleet_;
  Disk& disk_;
  const ChiefOptions options_;
  const OnRecovery on_recovery_;
  const bool has_begun_before_;
  Roster roster_;
  ClosureQueue queue_;
  const int64_t begun_at_;
  uint64_t epoch_ = 0;        // 0: not begun
  uint64_t known_epoch_ = 0;  // the latest epoch that servers have told of
  proto::View view_;          // what workers are told
  std::map<int, int64_t> heard_;
  std::map<int, Worker> workers_;
  uint64_t sessions_ = 0;
  uint64_t fills_ = 0;
  std::vector<Counts> source_;
  int64_t source_next_;
  int64_t scheduled_;
  std::vector<Counts> result_;
  bool started_ = false;
  bool busy_ = false;
  bool saving_ = false;
  bool alive_ = true;
  bool fenced_ = false;
};

}  // namespace cohort::simulation
