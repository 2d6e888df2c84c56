// Guard: a process that outlives the launcher. If the launcher is killed it ends the remaining workers.
#pragma once

#include <sys/types.h>

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

 private:
  pid_t pid_ = -1;
  int tell_ = -1;
};

}  // namespace cohort::cli
