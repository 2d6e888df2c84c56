#include "launch/guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include "base/fail.h"

namespace cohort::cli {

namespace {

// Reads the process groups to watch as positive numbers, and those to forget as negative ones. The end of the input
// means that the launcher has ended.
[[noreturn]] void guard(int hear) {
  ::setsid();  // signals to the launcher's terminal or group must not reach this process
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::signal(signal, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(fd);
  std::set<pid_t> groups;
  pid_t group = 0;
  while (::read(hear, &group, sizeof(group)) == sizeof(group)) {
    if (group > 0) groups.insert(group);
    if (group < 0) groups.erase(-group);
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

void Guard::watch(pid_t group) {
  [[maybe_unused]] const ssize_t written = ::write(tell_, &group, sizeof(group));
}

void Guard::forget(pid_t group) {
  const pid_t gone = -group;
  [[maybe_unused]] const ssize_t written = ::write(tell_, &gone, sizeof(gone));
}

}  // namespace cohort::cli
