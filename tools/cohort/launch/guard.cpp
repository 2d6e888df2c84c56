#include "launch/guard.h"

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

namespace {

// What the launcher tells its guard: a process group to watch (positive) or to forget (negative), or the end of the
// lease as the time of the monotonic clock, which all processes of a machine share.
struct Message {
  pid_t group = 0;
  int64_t lease_end = 0;  // ns; 0: there is no lease
};
static_assert(sizeof(Message) < PIPE_BUF, "a message is written whole");

int64_t in_ns(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// Returns the milliseconds until the end of the lease, rounded up; -1: there is no lease.
int left_of(int64_t lease_end) {
  if (lease_end == 0) return -1;
  constexpr int64_t kMillisecond = 1'000'000;
  const int64_t left = lease_end - in_ns(std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>((left + kMillisecond - 1) / kMillisecond, 0, INT_MAX));
}

// Reads messages and acts when time is over. The end of the input means that the launcher has ended.
[[noreturn]] void guard(int hear) {
  ::setsid();  // signals to the launcher's terminal or group must not reach this process
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
  std::set<pid_t> groups;
  int64_t lease_end = 0;
  for (;;) {
    pollfd place{.fd = hear, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&place, 1, left_of(lease_end));
    if (ready == 0) {
      for (const pid_t group : groups) ::kill(-group, SIGKILL);
      lease_end = 0;  // those that are started later have a lease of their own
      continue;
    }
    if (ready < 0 && errno == EINTR) continue;
    Message message;
    if (::read(hear, &message, sizeof(message)) != sizeof(message)) break;
    if (message.group > 0) groups.insert(message.group);
    if (message.group < 0) groups.erase(-message.group);
    if (message.group == 0) lease_end = message.lease_end;
  }
  for (const pid_t left : groups) ::kill(-left, SIGKILL);
  ::_exit(0);
}

}  // namespace

Guard::Guard() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail<Unavailable>("[launch] no pipe: ", std::strerror(errno));
  pid_ = ::fork();
  if (pid_ < 0) fail<Unavailable>("[launch] no process can be started: ", std::strerror(errno));
  if (pid_ == 0) {
    ::close(ends[1]);
    guard(ends[0]);
  }
  ::close(ends[0]);
  tell_ = ends[1];
}

Guard::~Guard() {
  ::close(tell_);
  ::waitpid(pid_, nullptr, 0);
}

void Guard::tell(pid_t group, int64_t lease_end) {
  const Message message{.group = group, .lease_end = lease_end};
  [[maybe_unused]] const ssize_t written = ::write(tell_, &message, sizeof(message));
}

void Guard::watch(pid_t group) {
  tell(group, 0);
}

void Guard::forget(pid_t group) {
  tell(-group, 0);
}

void Guard::lease_until(std::chrono::steady_clock::time_point end) {
  tell(0, in_ns(end));
}

void Guard::end_lease() {
  tell(0, 0);
}

}  // namespace cohort::cli
