// Guard: a process that outlives the launcher. If the launcher is killed it ends the remaining workers. It does so too
// when the lease ends under which they run, even while the launcher is stopped.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace cohort::cli {

class Guard {
 public:
  // Starts the process. Has to be called before there are threads. Unavailable: it cannot be started.
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  void watch(pid_t group);
  void forget(pid_t group);
  // Kills the watched groups at this time, unless it is put off before. Without such a call there is no lease.
  void lease_until(std::chrono::steady_clock::time_point end);
  // Ends the lease without killing anybody.
  void end_lease();

 private:
  void tell(pid_t group, int64_t lease_end);

  pid_t pid_ = -1;
  int tell_ = -1;
};

}  // namespace cohort::cli
