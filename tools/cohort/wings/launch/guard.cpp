#include "wings/launch/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <set>

#include "base/fail.h"

namespace cohort::cli {

// Orders from the launcher and its children. All processes of a machine share the monotonic clock.
struct Guard::Message {
  Order order = Order::kEndLease;
  pid_t group = 0;        // the process group to watch or to forget
  int64_t lease_end = 0;  // ns
};

namespace {

int64_t in_ns(Guard::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

int64_t now_in_ns() {
  return in_ns(std::chrono::steady_clock::now());
}

// Returns the milliseconds until the end of the lease, rounded up; -1: there is no lease.
int left_of(int64_t lease_end) {
  if (lease_end == 0) return -1;
  constexpr int64_t kMillisecond = 1'000'000;
  return static_cast<int>(std::clamp<int64_t>((lease_end - now_in_ns() + kMillisecond - 1) / kMillisecond, 0, INT_MAX));
}

}  // namespace

// Reads messages and acts when time is over. The end of the input means that the launcher has ended.
void Guard::serve(int hear) {
  static_assert(sizeof(Message) < PIPE_BUF, "a message is written whole");
  ::setsid();  // signals to the launcher's terminal or group must not reach this process
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
  std::set<pid_t> groups;
  int64_t lease_end = 0;
  bool lapsed = false;  // the lease has ended, and nobody may run before the next one
  for (;;) {
    pollfd place{.fd = hear, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&place, 1, lapsed ? -1 : left_of(lease_end));
    if (ready == 0) {
      lapsed = true;
      for (const pid_t group : groups) ::kill(-group, SIGKILL);
      continue;
    }
    if (ready < 0 && errno == EINTR) continue;
    Message message;
    if (::read(hear, &message, sizeof(message)) != sizeof(message)) break;
    switch (message.order) {
      case Order::kWatch:
        groups.insert(message.group);
        if (lapsed) ::kill(-message.group, SIGKILL);
        break;
      case Order::kForget:
        groups.erase(message.group);
        break;
      case Order::kExtendLease:
        if (!lapsed) lease_end = message.lease_end;
        break;
      case Order::kBeginLease:
      case Order::kEndLease:
        lease_end = message.lease_end;
        lapsed = false;
        break;
    }
  }
  for (const pid_t left : groups) ::kill(-left, SIGKILL);
  ::_exit(0);
}

Guard::Guard() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail<Unavailable>("[launch] no pipe: ", std::strerror(errno));
  pid_ = ::fork();
  if (pid_ < 0) fail<Unavailable>("[launch] no process can be started: ", std::strerror(errno));
  if (pid_ == 0) {
    ::close(ends[1]);
    serve(ends[0]);
  }
  ::close(ends[0]);
  tell_ = ends[1];
}

Guard::~Guard() {
  ::close(tell_);
  ::waitpid(pid_, nullptr, 0);
}

bool Guard::tell(const Message& message) const {
  return ::write(tell_, &message, sizeof(message)) == sizeof(message);
}

// The order matters: a process that is stopped after the look at the clock is watched already.
bool Guard::admit_this_process() const {
  const bool watched = tell({.order = Order::kWatch, .group = ::getpid()});
  const int64_t end = lease_end_;
  return end == 0 || (watched && now_in_ns() < end);
}

void Guard::forget(pid_t group) {
  (void)tell({.order = Order::kForget, .group = group});
}

void Guard::begin_lease(Time end) {
  lease_end_ = in_ns(end);
  (void)tell({.order = Order::kBeginLease, .lease_end = in_ns(end)});
}

void Guard::extend_lease(Time end) {
  if (now_in_ns() >= lease_end_) return;
  lease_end_ = in_ns(end);
  (void)tell({.order = Order::kExtendLease, .lease_end = in_ns(end)});
}

void Guard::end_lease() {
  lease_end_ = 0;
  (void)tell({.order = Order::kEndLease});
}

}  // namespace cohort::cli
