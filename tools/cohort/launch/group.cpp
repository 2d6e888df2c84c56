#include "launch/group.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <optional>

#include "base/fail.h"

namespace cohort::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP};
constexpr std::array kPassed = {SIGUSR1, SIGUSR2};

sigset_t watched() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : kEnding) ::sigaddset(&set, signal);
  for (const int signal : kPassed) ::sigaddset(&set, signal);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

class Group {
 public:
  Group(const GroupOptions& options, const Signals& signals, Guard& guard)
      : options_(options), signals_(signals), guard_(guard) {}

  GroupEnd run(const std::vector<WorkerPlan>& workers) {
    for (const WorkerPlan& worker : workers) {
      std::string file = worker.name + ".log";
      std::replace(file.begin(), file.end(), ' ', '_');
      const std::string log = options_.log_dir.empty() ? "" : c10::str(options_.log_dir, "/", file);
      children_.push_back(std::make_unique<Child>(worker, std::cout, log));
      guard_.watch(children_.back()->pid());
    }
    while (std::any_of(children_.begin(), children_.end(), [](const auto& child) { return child->running(); })) {
      wait();
      if (kill_at_ && Clock::now() >= *kill_at_) kill_all();
    }
    return end_;
  }

 private:
  void wait() {
    std::vector<pollfd> places{{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                               {.fd = options_.until_eof ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0},
                               {.fd = kill_at_ ? -1 : options_.stop_fd, .events = POLLIN, .revents = 0}};
    const std::size_t first = places.size();
    for (const auto& child : children_) places.push_back({.fd = child->output(), .events = POLLIN, .revents = 0});
    int limit = -1;
    if (kill_at_) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now()).count();
      limit = static_cast<int>(std::max<int64_t>(left, 0)) + 1;
    }
    if (::poll(places.data(), places.size(), limit) < 0 && errno != EINTR) {
      fail<Internal>("[launch] poll: ", std::strerror(errno));
    }
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (places[first + i].revents != 0) children_[i]->read();
    }
    if (places[1].revents != 0) hear_stdin();
    if (places[2].revents != 0) {
      end_.asked = end_.code == 0;
      stop(SIGTERM);
    }
    while (const int signal = signals_.next()) hear(signal);
    reap();
  }

  void hear_stdin() {
    std::array<char, 256> ignored{};
    if (::read(STDIN_FILENO, ignored.data(), ignored.size()) == 0 && !end_.stopped) hear(SIGTERM);
  }

  void hear(int signal) {
    if (signal == SIGCHLD) return;
    if (std::find(kPassed.begin(), kPassed.end(), signal) != kPassed.end()) return send(signal);
    if (end_.stopped) return kill_all();
    end_.stopped = true;
    stop(signal);
  }

  void send(int signal) const {
    for (const auto& child : children_) {
      if (child->running()) child->kill(signal);
    }
  }

  void stop(int signal) {
    send(signal);
    if (!kill_at_) kill_at_ = Clock::now() + options_.grace;
  }

  void kill_all() {
    send(SIGKILL);
    kill_at_ = std::nullopt;
  }

  void reap() {
    for (const auto& child : children_) {
      int status = 0;
      if (!child->running() || ::waitpid(child->pid(), &status, WNOHANG) != child->pid()) continue;
      child->ended(status);
      guard_.forget(child->pid());
      if (child->succeeded() || end_.code != 0) continue;
      end_.code = child->exit_code();
      if (end_.stopped || end_.asked) continue;
      report(*child);
      stop(SIGTERM);
    }
  }

  void report(const Child& child) const {
    const auto after = std::chrono::duration<double>(Clock::now() - begin_).count();
    std::cerr << "[launch] " << child.name() << " (pid " << child.pid() << ") " << child.fate() << " after "
              << static_cast<int64_t>(after * 10) / 10.0 << " s, so the others are ended. Its last lines:\n";
    for (const std::string& line : child.last_lines()) std::cerr << "[launch]   " << line << "\n";
    std::cerr << std::flush;
  }

  const GroupOptions& options_;
  const Signals& signals_;
  Guard& guard_;
  Clock::time_point begin_ = Clock::now();
  std::vector<std::unique_ptr<Child>> children_;
  std::optional<Clock::time_point> kill_at_;
  GroupEnd end_;
};

}  // namespace

Signals::Signals() {
  const sigset_t set = watched();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) fail<Unavailable>("[launch] signalfd: ", std::strerror(errno));
}

Signals::~Signals() {
  ::close(fd_);
  const sigset_t set = watched();
  ::sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int Signals::next() const {
  signalfd_siginfo info{};
  return ::read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

GroupEnd run_group(const std::vector<WorkerPlan>& workers, const GroupOptions& options, const Signals& signals,
                   Guard& guard) {
  return Group(options, signals, guard).run(workers);
}

}  // namespace cohort::cli
