#include "wings/launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/fail.h"
#include "cohort/preemption.h"

namespace cohort::cli {

namespace {

constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kLongestLine = 64 << 10;
constexpr int kCannotStart = 127;

// Runs between fork() and exec(), so it calls only functions that a signal handler may call.
[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& variables, int input,
                         int output, pid_t launcher, const Guard& guard) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(kCannotStart);  // the launcher died before the line above
  if (!guard.admit_this_process()) ::kill(::getpid(), SIGKILL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execvpe(arguments.front(), arguments.data(), variables.data());
  const char* reason = std::strerror(errno);
  for (const char* part :
       {"[launch] ", static_cast<const char*>(arguments.front()), " cannot be started: ", reason, "\n"}) {
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, part, std::strlen(part));
  }
  ::_exit(kCannotStart);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Returns the environment of this process, with the worker's variables replacing those of the same name.
std::vector<std::string> merged(const std::map<std::string, std::string>& own) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    if (!own.contains(text.substr(0, text.find('=')))) all.push_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(c10::str(name, "=", value));
  return all;
}

std::pair<int, int> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail<Unavailable>("[launch] no pipe: ", std::strerror(errno));
  return {ends[0], ends[1]};
}

}  // namespace

Child::Child(const WorkerPlan& plan, Output& output, const std::string& log, const Guard& guard)
    : name_(plan.name), to_(output) {
  if (!log.empty()) {
    log_.open(log);
    if (!log_) fail<Unavailable>("[launch] ", log, " cannot be written: ", std::strerror(errno));
  }
  std::vector<std::string> texts = plan.command;
  std::vector<std::string> environment = merged(plan.environment);
  const std::vector<char*> arguments = pointers(texts);
  const std::vector<char*> variables = pointers(environment);
  const auto [output_read, output_write] = make_pipe();
  const auto [input_read, input_write] =
      plan.hold_stdin ? make_pipe() : std::pair(::open("/dev/null", O_RDONLY | O_CLOEXEC), -1);
  const pid_t launcher = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(arguments, variables, input_read, output_write, launcher, guard);
  const int code = errno;
  ::close(output_write);
  ::close(input_read);
  output_ = output_read;
  input_ = input_write;
  if (pid_ < 0) {
    close_all();
    fail<Unavailable>("[launch] ", name_, " cannot be started: ", std::strerror(code));
  }
  if (!plan.input.empty() &&
      ::write(input_, plan.input.data(), plan.input.size()) != static_cast<ssize_t>(plan.input.size())) {
    kill(SIGKILL);  // it would wait for the rest
  }
  ::setpgid(pid_, pid_);  // parent and child both do so, because either may run first
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
}

Child::~Child() {
  if (running_) {
    kill(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_all();
}

void Child::close_all() {
  for (int* fd : {&output_, &input_}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

std::size_t Child::read_some() {
  if (output_ < 0) return 0;
  std::array<char, 65536> buffer{};
  const ssize_t count = ::read(output_, buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
  if (count <= 0) {
    ::close(output_);
    output_ = -1;
    return 0;
  }
  take({buffer.data(), static_cast<std::size_t>(count)});
  return static_cast<std::size_t>(count);
}

void Child::take(std::string_view output) {
  if (log_.is_open()) file(output);
  while (!output.empty()) {
    if (partial_.size() == kLongestLine && output.front() != '\n') write_line(std::exchange(partial_, ""));
    const std::size_t size = std::min({output.find('\n'), output.size(), kLongestLine - partial_.size()});
    partial_ += output.substr(0, size);
    output.remove_prefix(size);
    if (output.empty() || output.front() != '\n') continue;
    output.remove_prefix(1);
    write_line(std::exchange(partial_, ""));
  }
}

void Child::file(std::string_view output) {
  if (log_.write(output.data(), static_cast<std::streamsize>(output.size())).flush()) return;
  to_.add(c10::str("[launch] the log of ", name_, " cannot be written any more: ", std::strerror(errno), "\n"));
  log_.close();
}

void Child::write_line(const std::string& line) {
  to_.add(c10::str("[", name_, "] ", line, "\n"));
  last_lines_.push_back(line);
  if (last_lines_.size() > kKeptLines) last_lines_.pop_front();
}

void Child::kill(int signal) const {
  ::kill(-pid_, signal);
}

void Child::ended(int status) {
  running_ = false;
  status_ = status;
  kill(SIGKILL);  // the processes that it has started and left behind
  // Reads no more than the pipe holds, because processes that have left the group may write for ever.
  auto left = static_cast<int64_t>(std::max(0, ::fcntl(output_, F_GETPIPE_SZ)));
  while (left > 0) {
    const std::size_t count = read_some();
    if (count == 0) break;
    left -= static_cast<int64_t>(count);
  }
  if (!partial_.empty()) write_line(std::exchange(partial_, ""));
}

bool Child::succeeded() const {
  return WIFEXITED(status_) && WEXITSTATUS(status_) == 0;
}

int Child::exit_code() const {
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

std::string Child::fate() const {
  if (WIFSIGNALED(status_)) {
    return c10::str("was killed by signal ", WTERMSIG(status_), " (", ::strsignal(WTERMSIG(status_)), ")");
  }
  const int status = WEXITSTATUS(status_);
  return c10::str("exited with status ", status, status == kPreemptedExitCode ? " (preempted)" : "");
}

}  // namespace cohort::cli
