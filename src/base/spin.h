// Waits at the lowest cost: spins for the first microseconds, then yields to other threads; sleeping afterwards is left
// to the caller.
#pragma once

#include <chrono>
#include <thread>
#include <utility>

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

// How a thread waits, which it learns from its waits before. One for each thread and place.
struct Patience {
  int naps = 0;  // so many of the next waits sleep after a short look
};

// Polls until done() is true or the budget is used up, and returns done()'s last answer. With `spin` (every thread has
// a core) the budget is some hundred microseconds; without it, it is one look and a few yields.
//
// Another program that gets the core by a yield keeps it for its whole turn, some milliseconds, whatever happens
// meanwhile, while a thread that sleeps is woken as soon as what it waits for has come, and before those that have had
// their share. So when a yield has taken long, the waits that follow end soon, without one.
template <typename Done>
bool spin_until(const Done& done, bool spin, Patience& patience) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPauses = 2000;
  constexpr int kPausesBeforeNap = 200;
  constexpr int kYields = 200;
  constexpr int kYieldsOversubscribed = 20;
  constexpr int kNaps = 100;
  constexpr std::chrono::microseconds kTurnOfAnother(200);
  const bool nap = patience.naps > 0;
  if (spin) {
    for (int i = 0; i < (nap ? kPausesBeforeNap : kPauses); ++i) {
      if (done()) return true;
      cpu_pause();
    }
  }
  if (nap) {
    --patience.naps;
    return done();
  }
  auto before = Clock::now();
  for (int i = 0; i < (spin ? kYields : kYieldsOversubscribed); ++i) {
    if (done()) return true;
    std::this_thread::yield();
    const auto after = Clock::now();
    if (!spin || after - std::exchange(before, after) < kTurnOfAnother) continue;
    patience.naps = kNaps;
    break;
  }
  return done();
}

}  // namespace cohort
