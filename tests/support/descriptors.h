// A process without file descriptors.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace cohort::testing {

// Uses all descriptors that the process may have, while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    now.rlim_cur = 256;
    ::setrlimit(RLIMIT_NOFILE, &now);
    for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) used_.push_back(fd);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;
  ~NoDescriptors() {
    for (const int fd : used_) ::close(fd);
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  void give_one() {
    ::close(used_.back());
    used_.pop_back();
  }

 private:
  rlimit before_{};
  std::vector<int> used_;
};

inline double processor_seconds() {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds_of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds_of(use.ru_utime) + seconds_of(use.ru_stime);
}

}  // namespace cohort::testing
