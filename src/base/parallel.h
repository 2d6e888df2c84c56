// A loop over the intra-op threads of the calling thread.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define COHORT_THREAD_SANITIZER 1
#elif defined(__has_feature)
#define COHORT_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define COHORT_THREAD_SANITIZER 0
#endif

#if COHORT_THREAD_SANITIZER
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#endif

namespace cohort {

// Calls fn(begin, end) for pieces of 0 to n of at least `grain` elements, as at::parallel_for does. Tells
// ThreadSanitizer of the fork and the join, which OpenMP's library hides because it is not built with it.
template <typename Fn>
void parallel_for(int64_t n, int64_t grain, const Fn& fn) {
#if COHORT_THREAD_SANITIZER
  char fork = 0;
  char join = 0;
  __tsan_release(&fork);
  at::parallel_for(0, n, grain, [&](int64_t begin, int64_t end) {
    __tsan_acquire(&fork);
    fn(begin, end);
    __tsan_release(&join);
  });
  __tsan_acquire(&join);
#else
  at::parallel_for(0, n, grain, fn);
#endif
}

}  // namespace cohort
