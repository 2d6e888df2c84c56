#include "wings/launch/group.h"

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

// The time that the other workers may take to end by themselves when the leading one has ended.
constexpr std::chrono::seconds kFarewell(5);

constexpr int kBrokenPipe = 128 + SIGPIPE;  // the status that a shell gives for `yes | head`

constexpr std::array kEnding = {SIGINT, SIGTERM, SIGHUP};
constexpr std::array kPassed = {SIGUSR1, SIGUSR2};

bool ignored(int signal) {
  struct sigaction now {};
  ::sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

sigset_t watched() {
  sigset_t set;
  ::sigemptyset(&set);
  const auto add = [&](int signal) {
    if (!ignored(signal)) ::sigaddset(&set, signal);
  };
  std::for_each(kEnding.begin(), kEnding.end(), add);
  std::for_each(kPassed.begin(), kPassed.end(), add);
  ::sigaddset(&set, SIGCHLD);
  return set;
}

class Group {
 public:
  Group(const GroupOptions& options, const Signals& signals, Guard& guard)
      : options_(options), signals_(signals), guard_(guard) {}

  GroupEnd run(const std::vector<WorkerPlan>& workers) {
    plans_ = workers;
    restarts_.resize(workers.size());
    for (std::size_t i = 0; i < workers.size(); ++i) children_.push_back(start(i));
    while (std::any_of(children_.begin(), children_.end(), [](const auto& child) { return child->running(); })) {
      wait();
      if (kill_at_ && Clock::now() >= *kill_at_) kill_all();
    }
    finish_output();
    return end_;
  }

 private:
  std::unique_ptr<Child> start(std::size_t which) {
    const WorkerPlan& plan = plans_[which];
    std::string file = restarts_[which] == 0 ? plan.name + ".log" : c10::str(plan.name, ".", restarts_[which], ".log");
    std::replace(file.begin(), file.end(), ' ', '_');
    const std::string log = options_.log_dir.empty() ? "" : c10::str(options_.log_dir, "/", file);
    return std::make_unique<Child>(plan, output_, log, guard_);
  }

  // Starts a failed process again. Returns false if it may not be.
  bool restart(std::size_t which) {
    if (restarts_[which] == options_.restarts_each || kill_at_ || end_.stopped || end_.asked) return false;
    ++restarts_[which];
    std::cerr << "[launch] " << children_[which]->name() << " (pid " << children_[which]->pid() << ") "
              << children_[which]->fate() << "; it is started again, restart " << restarts_[which] << " of "
              << options_.restarts_each << std::endl;
    plans_[which].environment["COHORT_RESTART_COUNT"] = std::to_string(restarts_[which]);
    children_[which] = start(which);
    return true;
  }

  void wait() {
    std::vector<pollfd> places{
        {.fd = signals_.fd(), .events = POLLIN, .revents = 0},
        {.fd = options_.until_eof && !end_.stopped ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0},
        {.fd = kill_at_ ? -1 : options_.stop_fd, .events = POLLIN, .revents = 0},
        {.fd = output_.waiting_fd(), .events = POLLOUT, .revents = 0}};
    const std::size_t first = places.size();
    for (const auto& child : children_) {
      places.push_back({.fd = output_.full() ? -1 : child->output(), .events = POLLIN, .revents = 0});
    }
    int limit = over_ ? 100 : -1;
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
    write_output();
    while (const int signal = signals_.next()) hear(signal);
    reap();
  }

  void write_output() {
    output_.write_some();
    if (!output_.broken() || end_.stopped) return;
    std::cerr << "[launch] nobody reads the output any more, so the workers are ended" << std::endl;
    end_.stopped = true;
    stop(SIGTERM);
  }

  // Writes the workers' last lines as long as somebody reads them, or for a moment if this process was told to end.
  void finish_output() {
    std::optional<Clock::time_point> told;
    for (write_output(); !output_.empty(); write_output()) {
      while (const int signal = signals_.next()) hear(signal);
      if (!told && (end_.stopped || end_.asked)) told = Clock::now();
      if (told && Clock::now() - *told > kFarewell) break;
      std::array<pollfd, 2> places{{{.fd = signals_.fd(), .events = POLLIN, .revents = 0},
                                    {.fd = output_.waiting_fd(), .events = POLLOUT, .revents = 0}}};
      ::poll(places.data(), places.size(), 100);
    }
    if (output_.broken() && end_.code == 0) end_.code = kBrokenPipe;
  }

  void hear_stdin() {
    std::array<char, 256> ignored{};
    if (::read(STDIN_FILENO, ignored.data(), ignored.size()) == 0 && !end_.stopped) hear(SIGTERM);
  }

  void hear(int signal) {
    if (signal == SIGCHLD) return;
    if (std::find(kPassed.begin(), kPassed.end(), signal) != kPassed.end()) return send(signal);
    if (std::exchange(signalled_, true)) return kill_all();
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
    for (std::size_t i = 0; i < children_.size(); ++i) {
      Child& child = *children_[i];
      int status = 0;
      if (!child.running() || ::waitpid(child.pid(), &status, WNOHANG) != child.pid()) continue;
      child.ended(status);
      guard_.forget(child.pid());
      if (child.succeeded() && plans_[i].leads && !over_) over_ = Clock::now();
      if (child.succeeded() || end_.code != 0 || over_ || restart(i)) continue;
      end_.code = child.exit_code();
      if (end_.stopped || end_.asked) continue;
      report(child);
      stop(SIGTERM);
    }
    // The leading worker tells the others that the run is over. One that was being started again does not hear it.
    if (over_ && !kill_at_ && Clock::now() - *over_ > kFarewell) stop(SIGTERM);
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
  std::vector<WorkerPlan> plans_;
  std::vector<int> restarts_;
  std::vector<std::unique_ptr<Child>> children_;
  Output output_{STDOUT_FILENO};
  bool signalled_ = false;  // a signal or the end of standard input told this process to end
  std::optional<Clock::time_point> kill_at_;
  std::optional<Clock::time_point> over_;  // the time at which the leading worker ended well
  GroupEnd end_;
};

}  // namespace

Signals::Signals() : watched_(watched()) {
  // A handler is set and not SIG_IGN, because programs that are started would inherit SIG_IGN.
  if (!ignored(SIGPIPE)) ::signal(SIGPIPE, [](int) {});
  ::signal(SIGCHLD, SIG_DFL);  // if SIGCHLD were ignored, as the parent may have set it, waitpid() would fail
  ::sigprocmask(SIG_BLOCK, &watched_, nullptr);
  fd_ = ::signalfd(-1, &watched_, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) fail<Unavailable>("[launch] signalfd: ", std::strerror(errno));
}

Signals::~Signals() {
  ::close(fd_);
  ::sigprocmask(SIG_UNBLOCK, &watched_, nullptr);
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
