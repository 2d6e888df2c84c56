// Waits at the lowest cost: spins for the first microseconds, then yields to other threads; sleeping afterwards is left
// to the caller.
#pragma once

#include <thread>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace cohort {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls until done() is true or the budget is used up, and returns done()'s last answer. With `spin` (every thread has
// a core) the budget is some hundred microseconds; without it, it is one look and a few yields.
template <typename Done>
bool spin_until(const Done& done, bool spin) {
  constexpr int kPauses = 2000;
  constexpr int kYields = 200;
  constexpr int kYieldsOversubscribed = 20;
  if (spin) {
    for (int i = 0; i < kPauses; ++i) {
      if (done()) return true;
      cpu_pause();
    }
  }
  const int yields = spin ? kYields : kYieldsOversubscribed;
  for (int i = 0; i < yields; ++i) {
    if (done()) return true;
    std::this_thread::yield();
  }
  return done();
}

}  // namespace cohort
