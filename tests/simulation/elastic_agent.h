// SimAgent: a launcher of the elastic simulation, its guard and its workers, all on one machine. What it does, and in
// which order, is what Agent, Group and Guard do (tools/cohort/launch); when its lease ends is said by lease.h, and
// whether the leader is there by Liveness and BeatPlan.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/beat_plan.h"
#include "cluster/liveness.h"
#include "tests/simulation/world.h"
#include "wings/launch/elastic/lease.h"
#include "wings/launch/elastic/roster.h"

namespace cohort::simulation {

constexpr int kLeaderNode = 0;
constexpr int kFirstLauncher = 10;  // the node of launcher 0; its guard and its workers have nodes of their own
constexpr int kFirstGuard = 30;
constexpr int kFirstMachine = 50;

// The time of a node's clock, which does not run at the speed of other ones.
inline Liveness::Time time_of(const World& world, int node) {
  return Liveness::Time(std::chrono::milliseconds(world.clock(node)));
}

// The workers that run anywhere, and what they have trained.
struct Training {
  struct Worker {
    int64_t round = 0;
    uint64_t process = 0;
  };
  int64_t steps = 0;  // of the checkpoint
  int64_t wanted = 60;
  std::vector<Worker> workers = {};
  int64_t world = 0;  // the number of workers of the latest round
};

class SimAgent {
 public:
  using Respond = World::Respond;
  using Exchange = std::function<void(const cli::Report& report, const Respond& respond)>;

  SimAgent(World& world, Training& training, int index, int workers, Exchange exchange)
      : world_(world), training_(training), index_(index), exchange_(std::move(exchange)) {
    report_.set_agent(c10::str("agent ", index, ".", world.new_process()));
    report_.set_id(world.new_process());
    report_.set_host(c10::str("host-", index));
    report_.set_port(1000 + index);
    report_.set_workers(workers);
    leader_alive_.hear(now());
    world_.note(report_.agent(), " begins with ", workers, " workers");
    talk();
  }

  bool alive() const { return alive_; }
  int launcher() const { return kFirstLauncher + index_; }
  const std::optional<int>& status() const { return status_; }

  // SIGKILL to the launcher: its guard notices at once.
  void kill() {
    if (!alive_) return;
    alive_ = false;
    world_.note(report_.agent(), " is killed");
    world_.at(guard(), world_.between(1, 50), [this] { kill_workers("its guard"); });
  }
  // SIGTERM to the launcher.
  void tell_to_end() { told_to_end_ = true; }
  // A worker is killed, as by a lack of memory.
  void kill_a_worker() {
    if (running_.empty()) return;
    const uint64_t process = running_[world_.draw(running_.size())];
    world_.note("a worker of ", report_.agent(), " is killed");
    end_worker(process, /*code=*/137);
  }

 private:
  static constexpr int64_t kTalk = 100;
  static constexpr std::chrono::milliseconds kSilence{10'000};

  int guard() const { return kFirstGuard + index_; }
  int machine() const { return kFirstMachine + index_; }
  Liveness::Time now() const { return time_of(world_, machine()); }
  // Lets the launcher do something, unless it is dead by then; while it is stopped it does nothing.
  void later(int64_t delay, const std::function<void()>& action) {
    world_.at(launcher(), delay, [this, action] {
      if (alive_) action();
    });
  }

  // -- The conversation with the leader.

  void talk_later() {
    later(kTalk, [this, mine = ++talks_] {
      if (mine == talks_) talk();
    });
  }
  void talk() {
    ++talks_;
    const auto sent = now();
    talking_ = true;
    report_.set_number(report_.number() + 1);
    const auto end = [this, sent](const Answer& answer) {
      if (!alive_) return;
      talking_ = false;
      hear(sent, answer.ok ? std::optional(std::any_cast<cli::Order>(answer.value)) : std::nullopt);
    };
    const BeatPlan::Attempt attempt = plan_.next(now());
    world_.call(
        launcher(), kLeaderNode, attempt.limit.count(),
        [exchange = exchange_, report = report_](const Respond& respond) { exchange(report, respond); }, end,
        Delivery::kOnce, attempt.again.count());
  }
  void hear(Liveness::Time sent, const std::optional<cli::Order>& order) {
    if (order) {
      plan_.heard(now());
      const auto wrong = cli::misfit(*order, kMostOfAnAgent);
      if (wrong) world_.violate("an order does not fit: ", *wrong);
      lapsed_ = lapsed_ || leader_alive_.silence(now()) >= cli::kLeaseAtAgent;
      leader_alive_.hear(sent);
      if (report_.running()) extend_lease(sent + cli::kLeaseAtAgent);
    } else {
      plan_.failed();
      if (plan_.lost(now())) plan_ = BeatPlan(kPatience, now());
    }
    cli::Order next = order.value_or(cli::Order());
    if (!order && leader_alive_.lost(now())) {
      world_.note(report_.agent(), ": the leader is lost");
      next.set_kind(cli::Order::EXIT);
      next.set_code(1);
    }
    report_.running() ? hear_in_round(order || next.kind() == cli::Order::EXIT, next) : hear_outside(next);
  }
  void hear_outside(const cli::Order& order) {
    if (order.kind() == cli::Order::EXIT) return exit(order.code());
    if (order.kind() == cli::Order::RUN && order.round() != report_.round()) return begin_round(order);
    if (told_to_end_) return leave(143);
    talk_later();
  }
  void hear_in_round(bool heard, const cli::Order& order) {
    if (heard && (order.kind() != cli::Order::RUN || order.round() != report_.round())) {
      asked_ = true;
      stop_workers(/*asked=*/true);
    }
    if (left_ == 0 && !starting_) return end_round();
    talk_later();
  }
  void leave(int code) {
    report_.set_leaving(true);
    report_.set_number(report_.number() + 1);
    world_.call(
        launcher(), kLeaderNode, kLimit,
        [exchange = exchange_, report = report_](const Respond& respond) { exchange(report, respond); },
        [this, code](const Answer&) {
          if (alive_) exit(code);
        },
        Delivery::kOnce);
  }
  void exit(int code) {
    if (!running_.empty()) world_.violate(report_.agent(), " ends beside its workers");
    world_.note(report_.agent(), " ends with status ", code);
    status_ = code;
    alive_ = false;
  }

  // -- The workers of a round.

  void begin_round(const cli::Order& order) {
    world_.note(report_.agent(), " begins round ", order.round(), " with ", order.workers(), " workers");
    report_.set_round(order.round());
    report_.set_running(true);
    lapsed_ = asked_ = end_asked_ = stopped_ = false;
    code_ = 0;
    lease_over_ = false;
    lease_until(leader_alive_.heard() + cli::kLeaseAtAgent);
    // The launcher starts them one after the other; it may be stopped in between.
    starting_ = true;
    start_worker(order, order.workers());
    talk_later();
  }
  void start_worker(const cli::Order& order, int left) {
    if (left == 0) {
      starting_ = false;
      // A launcher that is told to end, or whose worker has failed already, ends all that it has started.
      if (code_ != 0 || end_asked_) stop_workers(end_asked_);
      return;
    }
    const uint64_t process = world_.new_process();
    running_.push_back(process);
    ++left_;
    later(world_.between(1, 10), [this, order, left] { start_worker(order, left - 1); });
    if (lease_over_ || now() >= *lease_end_) return end_worker(process, 137);  // the guard does not admit it
    for (const Training::Worker& other : training_.workers) {
      if (other.round == order.round()) continue;
      world_.violate("a worker of round ", order.round(), " begins at ", report_.agent(), " while one of round ",
                     other.round, " runs");
    }
    training_.workers.push_back({.round = order.round(), .process = process});
    training_.world = order.world();
    world_.at(machine(), world_.between(50, 400), [this, process] { train(process); });
  }
  // A step of one worker, which needs all others of its round. If they are not there for 5 s it fails.
  void train(uint64_t process) {
    const auto self = std::find_if(training_.workers.begin(), training_.workers.end(),
                                   [&](const Training::Worker& each) { return each.process == process; });
    if (self == training_.workers.end()) return;
    const auto count = std::count_if(training_.workers.begin(), training_.workers.end(),
                                     [&](const Training::Worker& each) { return each.round == self->round; });
    if (training_.steps >= training_.wanted) return end_worker(process, 0);
    if (count == training_.world) ++training_.steps;
    const int64_t missing = count == training_.world ? 0 : missing_[process] + 200;
    missing_[process] = missing;
    if (missing > 5000) return end_worker(process, 1);
    world_.at(machine(), 200, [this, process] { train(process); });
  }
  // Tells the workers to save and end, as SIGTERM does; later they are killed.
  void stop_workers(bool asked) {
    if (std::exchange(stopped_, true)) return;
    end_asked_ = asked && code_ == 0;
    for (const uint64_t process : running_) {
      world_.at(machine(), world_.between(50, 2000), [this, process] { end_worker(process, kPreempted); });
    }
    later(kGrace, [this, round = report_.round()] {
      if (report_.round() == round) kill_workers("its launcher");
    });
  }
  void kill_workers(const char* by) {
    if (running_.empty()) return;
    world_.note("the workers of ", report_.agent(), " are killed by ", by);
    for (const uint64_t process : std::vector<uint64_t>(running_)) {
      world_.at(machine(), world_.between(0, 20), [this, process] { end_worker(process, 137); });
    }
  }
  void end_worker(uint64_t process, int code) {
    if (std::erase(running_, process) == 0) return;
    std::erase_if(training_.workers, [&](const Training::Worker& each) { return each.process == process; });
    missing_.erase(process);
    // The launcher hears of it as soon as it is not stopped.
    later(world_.between(0, 10), [this, code] {
      --left_;
      if (code != 0 && code_ == 0) {
        code_ = code;
        if (!starting_) stop_workers(/*asked=*/false);
      }
      if (left_ == 0 && !starting_ && !talking_ && report_.running()) end_round();
    });
  }
  void end_round() {
    lapsed_ = lapsed_ || leader_alive_.silence(now()) >= cli::kLeaseAtAgent;
    lease_end_.reset();
    report_.set_running(false);
    report_.set_asked((asked_ && end_asked_) || lapsed_);
    report_.set_code(code_);
    report_.set_by_signal(code_ > 128);
    world_.note(report_.agent(), " has ended round ", report_.round(), " with status ", code_);
    if (told_to_end_) return leave(143);
    if (!talking_) talk();
  }

  // -- The guard.

  void extend_lease(Liveness::Time end) {
    if (!lease_over_ && now() < *lease_end_) lease_until(end);
  }
  void lease_until(Liveness::Time end) {
    lease_end_ = end;
    const int64_t left = std::chrono::duration_cast<std::chrono::milliseconds>(end - now()).count();
    // The guard is a process of its own: it acts even while the launcher is stopped.
    world_.at(guard(), world_.real(machine(), std::max<int64_t>(0, left)) + world_.between(0, 20), [this, end] {
      if (lease_end_ != end || !alive_) return;
      lease_over_ = true;
      kill_workers("its guard, at the end of the lease");
    });
  }

  static constexpr int kPreempted = 42;
  static constexpr int kMostOfAnAgent = 16;
  static constexpr int64_t kGrace = 5000;
  static constexpr int64_t kLimit = 1000;
  static constexpr std::chrono::milliseconds kPatience = cli::AgentRosterOptions().silence;

  World& world_;
  Training& training_;
  const int index_;
  const Exchange exchange_;
  cli::Report report_;
  Liveness leader_alive_{kSilence};
  BeatPlan plan_{kPatience, now()};
  bool alive_ = true;
  bool talking_ = false;
  uint64_t talks_ = 0;
  bool told_to_end_ = false;
  std::optional<int> status_;
  // The round.
  bool lapsed_ = false;
  bool asked_ = false;
  bool end_asked_ = false;
  bool stopped_ = false;
  bool starting_ = false;
  int code_ = 0;
  int left_ = 0;  // number of workers of which the launcher has not heard that they have ended
  std::vector<uint64_t> running_;
  std::map<uint64_t, int64_t> missing_;
  std::optional<Liveness::Time> lease_end_;
  bool lease_over_ = false;  // the guard has killed the workers of the round, and admits no more
};

}  // namespace cohort::simulation
