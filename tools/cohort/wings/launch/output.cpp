#include "wings/launch/output.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iostream>

namespace cohort::cli {

namespace {

constexpr std::size_t kMostWaiting = 256 << 10;

}  // namespace

Output::Output(int fd) : fd_(fd) {
  struct stat status {};
  regular_ = ::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
}

bool Output::full() const {
  return waiting_.size() >= kMostWaiting;
}

void Output::add(std::string_view text) {
  if (!broken_ && !failed_) waiting_ += text;
}

void Output::write_some() {
  std::size_t written = 0;
  while (written < waiting_.size()) {
    pollfd place{.fd = fd_, .events = POLLOUT, .revents = 0};
    if (::poll(&place, 1, 0) <= 0) break;
    // A pipe that is ready takes so many bytes without a wait. It cannot be set to non-blocking, because the programs
    // that share it would be affected.
    const std::size_t most = regular_ ? kMostWaiting : PIPE_BUF;
    const ssize_t count = ::write(fd_, waiting_.data() + written, std::min(most, waiting_.size() - written));
    if (count >= 0) {
      written += static_cast<std::size_t>(count);
      continue;
    }
    if (errno == EINTR || errno == EAGAIN) break;
    broken_ = errno == EPIPE;
    failed_ = !broken_;
    if (failed_) std::cerr << "[launch] standard output cannot be written any more: " << std::strerror(errno) << "\n";
    written = waiting_.size();
  }
  waiting_.erase(0, written);
}

}  // namespace cohort::cli
