// Forks: a process that was forked off has none of its parent's threads, so that what stands on threads has to know.
#pragma once

#include <pthread.h>

#include <atomic>

namespace cohort {

// Returns how many forks are between this process and the one that called this first. Thread-safe.
inline int forks() {
  static std::atomic<int> count{0};
  static const int registered = pthread_atfork(nullptr, nullptr, [] { ++count; });
  (void)registered;
  return count.load(std::memory_order_relaxed);
}

}  // namespace cohort
