#include "cohort/preemption.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include "base/fail.h"

namespace cohort {

namespace {

// The number of signals that were heard. A signal handler can reach nothing but such a variable.
std::atomic<int64_t> signals_heard = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free);

struct Watchers {
  std::mutex mutex;
  int count = 0;
  struct sigaction before = {};
};

Watchers& watchers() {
  static Watchers all;
  return all;
}

}  // namespace

PreemptionWatcher::PreemptionWatcher() : heard_(signals_heard) {
  Watchers& all = watchers();
  const std::lock_guard lock(all.mutex);
  if (all.count == 0) {
    struct sigaction action = {};
    action.sa_handler = [](int) { ++signals_heard; };
    action.sa_flags = SA_RESTART;
    if (::sigaction(SIGTERM, &action, &all.before) != 0) {
      fail<Unavailable>("[preemption] SIGTERM cannot be handled: ", std::strerror(errno));
    }
  }
  ++all.count;
}

PreemptionWatcher::~PreemptionWatcher() {
  Watchers& all = watchers();
  const std::lock_guard lock(all.mutex);
  if (--all.count == 0) ::sigaction(SIGTERM, &all.before, nullptr);
}

bool PreemptionWatcher::preempted() const noexcept {
  return signals_heard != heard_;
}

}  // namespace cohort
