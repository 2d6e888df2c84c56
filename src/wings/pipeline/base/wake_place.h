// WakePlace: tells the scheduler on which core a sleeping thread is to go on.
//
// Threads that take turns need one core: each of them sleeps as soon as the next one runs. Linux does not know that.
// When the other cores are busy it may put the woken thread behind the work of one of these, or two busy threads on one
// core, and it takes milliseconds to see that another core idles. So a thread is bound to a core for the moment of its
// waking, and is free to move, by the scheduler's choice, as soon as it runs.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <optional>

namespace cohort {

// Returns the core that is `distance` cores behind this thread's among those that it may use, of which the first one
// follows the last one; -1: it is not known.
int core_behind(int distance);

// Not thread-safe: the mutex that guards what the thread waits for guards this, too.
class WakePlace {
 public:
  // This thread will sleep. It remembers where it is, if there is no place yet.
  void sleep();
  // Whoever wakes the thread calls this before it notifies. Has no effect on a thread that does not sleep, without a
  // place, or where the system refuses.
  void bind();
  // This thread is awake and may use all its cores; the place is where it is now.
  void leave();

  int core() const { return core_; }
  void set_core(int core) { core_ = core; }

 private:
  std::optional<pthread_t> sleeper_;
  cpu_set_t cores_{};  // that it may use
  int core_ = -1;
  bool bound_ = false;
};

}  // namespace cohort
