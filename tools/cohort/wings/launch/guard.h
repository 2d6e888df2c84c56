// Guard: a process that outlives the launcher. If the launcher is killed it ends the remaining workers. It does so too
// when the lease ends under which they run, even while the launcher is stopped. After that no worker starts until the
// next lease begins.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace cohort::cli {

class Guard {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Starts the process. Has to be called before there are threads. Unavailable: it cannot be started.
  Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();

  // Lets the guard watch the process group of the calling process, a child of the launcher that has not become its
  // program yet. Returns whether the program may start: there is no lease, or it has not ended. The child calls it
  // itself, so that a launcher that is stopped at any place leaves no worker unwatched. Safe between fork() and exec().
  bool admit_this_process() const;
  void forget(pid_t group);
  // Begins a lease: kills the watched groups at this time, unless it is put off before. Without one there is no limit.
  void begin_lease(Time end);
  // Puts the end of the lease off, unless it has ended already.
  void extend_lease(Time end);
  // Ends the lease without killing anybody.
  void end_lease();

 private:
  enum class Order { kWatch, kForget, kBeginLease, kExtendLease, kEndLease };
  struct Message;
  [[noreturn]] static void serve(int hear);
  bool tell(const Message& message) const;

  pid_t pid_ = -1;
  int tell_ = -1;
  std::atomic<int64_t> lease_end_ = 0;  // ns of the monotonic clock; 0: there is no lease
};

}  // namespace cohort::cli
