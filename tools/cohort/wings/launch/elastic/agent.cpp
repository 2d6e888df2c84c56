#include "wings/launch/elastic/agent.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <thread>

#include "base/draw.h"
#include "base/fail.h"
#include "base/wait_reporting.h"
#include "cluster/free_port.h"
#include "cluster/liveness.h"

namespace cohort::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTalk = milliseconds(100);  // the pause between two reports
constexpr milliseconds kSilence = std::chrono::seconds(10);
constexpr int kFailed = 1;
constexpr int kSignalled = 128;

// Returns this agent's workers of a round.
std::vector<WorkerPlan> plan_round(const LaunchOptions& options, const Order& order) {
  std::vector<WorkerPlan> workers;
  for (int local = 0; local < order.workers(); ++local) {
    workers.push_back(plan_worker(options, {.rank = order.first_rank() + local,
                                            .world = order.world(),
                                            .local = local,
                                            .local_world = order.workers(),
                                            .group = order.group(),
                                            .master_addr = order.master_host(),
                                            .master_port = order.master_port(),
                                            .restarts = static_cast<int>(order.round() - 1)}));
  }
  return workers;
}

int64_t whole_seconds(Clock::duration span) {
  return std::chrono::duration_cast<std::chrono::seconds>(span).count();
}

std::string own_name(const std::string& host) {
  return c10::str(host, " (pid ", ::getpid(), ")");
}

// A flag that a thread sets and another one polls for.
class Event {
 public:
  Event() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) fail<Unavailable>("[launch] eventfd: ", std::strerror(errno));
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { ::close(fd_); }
  void set() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof(one));
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

class Agent {
 public:
  Agent(Leader& leader, const AgentOptions& options, const Signals& signals, Guard& guard)
      : leader_(leader), options_(options), signals_(signals), guard_(guard) {
    report_.set_agent(own_name(options.host));
    report_.set_id(draw_number());
    report_.set_host(options.host);
    report_.set_port(free_port(options.host));
    report_.set_workers(options.launch.nproc);
    leader_alive_.hear(Clock::now());
    coming_.emplace(WaitOptions{.who = "[launch]", .limit = options.join_timeout}, Clock::now());
  }

  int run() {
    for (;;) {
      const Order order = talk().value_or(Order{});
      if (order.kind() == Order::EXIT) return order.code();
      if (order.kind() == Order::RUN && order.round() != report_.round()) {
        if (const auto code = run_round(order)) return *code;
        continue;
      }
      pollfd place{.fd = signals_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&place, 1, static_cast<int>(kTalk.count()));
      if (const int signal = told_to_end()) return leave(kSignalled + signal);
    }
  }

 private:
  // Returns the signal that told this process to end; 0: none.
  int told_to_end() const {
    while (const int signal = signals_.next()) {
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return signal;
    }
    return 0;
  }

  // Returns the leader's order, or nothing if it does not answer. If it has not answered for long the order ends the
  // run.
  std::optional<Order> talk() {
    const auto sent = Clock::now();
    report_.set_number(report_.number() + 1);
    auto order = leader_.exchange(report_);
    const auto now = Clock::now();
    if (const auto wrong = order ? misfit(*order, options_.launch.nproc) : std::nullopt) {
      std::cerr << "[launch] the leader's order does not fit: " + *wrong + "\n";
      return exit_order(kFailed);
    }
    if (order) {
      const auto lease_end = leader_alive_.heard() + kLeaseAtAgent;
      leader_alive_.hear(sent);  // the lease counts from there: the answer may have been under way for long
      if (report_.running()) guard_.extend_lease(sent + kLeaseAtAgent);
      lapsed_ = lapsed_ || Clock::now() >= lease_end;  // the guard may have heard of the new lease too late
      coming_.reset();
      return order;
    }
    if (coming_ ? coming_->over(now) : leader_alive_.lost(now)) {
      const int64_t silence = whole_seconds(leader_alive_.silence(now));
      std::cerr << "[launch] the leader is lost: nothing was heard of it for " << silence << " s\n";
      return exit_order(kFailed);
    }
    if (coming_ && coming_->due(now)) {
      std::cerr << "[launch] waits for the leader (" << whole_seconds(coming_->waited(now)) << " of "
                << whole_seconds(options_.join_timeout) << " s)\n";
    }
    return order;
  }

  static Order exit_order(int code) {
    Order order;
    order.set_kind(Order::EXIT);
    order.set_code(code);
    return order;
  }

  int leave(int code) {
    report_.set_leaving(true);
    report_.set_number(report_.number() + 1);
    leader_.exchange(report_);
    return code;
  }

  // Runs a round. Returns the exit status if this process was told to end.
  std::optional<int> run_round(const Order& order) {
    report_.set_round(order.round());
    report_.set_running(true);
    lapsed_ = false;
    guard_.begin_lease(leader_alive_.heard() + kLeaseAtAgent);
    const Event stop;
    std::atomic<bool> asked = false;
    GroupEnd end;
    {
      const std::jthread talker([&](const std::stop_token& done) {
        while (!done.stop_requested()) {
          const auto next = talk();
          // The order is for another round, or this agent takes part in none because it was taken for lost.
          if (next && (next->kind() != Order::RUN || next->round() != order.round())) {
            asked = true;
            stop.set();
          }
          std::this_thread::sleep_for(kTalk);
        }
      });
      GroupOptions group = options_.group(order.round());
      group.stop_fd = stop.fd();
      end = run_group(plan_round(options_.launch, order), group, signals_, guard_);
    }
    // Workers whose lease has ended were killed by the guard, and have not failed.
    lapsed_ = lapsed_ || leader_alive_.silence(Clock::now()) >= kLeaseAtAgent;
    guard_.end_lease();
    report_.set_running(false);
    report_.set_asked((asked && end.asked) || lapsed_);
    report_.set_code(end.code);
    report_.set_by_signal(end.code > kSignalled);
    report_.set_port(free_port(options_.host));  // the last port was used
    if (end.stopped) return leave(end.code);
    return std::nullopt;
  }

  Leader& leader_;
  const AgentOptions& options_;
  const Signals& signals_;
  Guard& guard_;
  Report report_;
  Liveness leader_alive_{kSilence};   // tells whether the leader is alive
  bool lapsed_ = false;               // the round's workers have lost their lease
  std::optional<WaitReport> coming_;  // the wait for its first answer
};

}  // namespace

int run_agent(Leader& leader, const AgentOptions& options, const Signals& signals, Guard& guard) {
  return Agent(leader, options, signals, guard).run();
}

}  // namespace cohort::cli
