// A loop over the intra-op threads of the calling thread, and over those of others that have nothing else to do.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

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

// Threads that stand by while one of them works, such as a pipeline's stages during its update, or before their first
// microbatch and after their last one. While it lives, the loops of the thread that has made it are divided among them.
// Its threads work on memory that the caller has, so that run() has to wait for them however long that takes.
class LoopTeam {
 public:
  // Calls piece(0) on the calling thread and piece(1), ... on the others, and returns when all have come back. No piece
  // throws.
  using Run = std::function<void(const std::function<void(int)>& piece)>;

  LoopTeam(int size, Run run) : size_(size), run_(std::move(run)), before_(std::exchange(current, this)) {}
  LoopTeam(const LoopTeam&) = delete;
  LoopTeam& operator=(const LoopTeam&) = delete;
  ~LoopTeam() { current = before_; }

  // Calls loop(begin, end) for pieces of 0 to n of at least `grain` elements, one for each thread. Returns false if
  // that is not worth it or the calling thread has no team. What a piece throws is thrown when all have come back.
  template <typename Loop>
  static bool divides(int64_t n, int64_t grain, const Loop& loop) {
    LoopTeam* const team = current;
    if (team == nullptr || n <= grain) return false;
    current = nullptr;  // a loop within a piece is that thread's own
    const int64_t most = (n + grain - 1) / grain;
    const int64_t each = (n + std::min<int64_t>(team->size_, most) - 1) / std::min<int64_t>(team->size_, most);
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(team->size_));
    team->run_([&](int number) {
      const int64_t begin = std::min(n, number * each);
      const int64_t end = std::min(n, begin + each);
      try {
        if (begin < end) loop(begin, end);
      } catch (...) {
        errors[static_cast<std::size_t>(number)] = std::current_exception();
      }
    });
    current = team;
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    return true;
  }

 private:
  int size_;
  Run run_;
  LoopTeam* before_;
  static inline thread_local LoopTeam* current = nullptr;
};

namespace detail {

// Tells ThreadSanitizer of the fork and the join, which OpenMP's library hides because it is not built with it.
template <typename Fn>
void intra_op_for(int64_t from, int64_t to, int64_t grain, const Fn& fn) {
#if COHORT_THREAD_SANITIZER
  char fork = 0;
  char join = 0;
  __tsan_release(&fork);
  at::parallel_for(from, to, grain, [&](int64_t begin, int64_t end) {
    __tsan_acquire(&fork);
    fn(begin, end);
    __tsan_release(&join);
  });
  __tsan_acquire(&join);
#else
  at::parallel_for(from, to, grain, fn);
#endif
}

}  // namespace detail

// Calls fn(begin, end) for pieces of 0 to n of at least `grain` elements, as at::parallel_for does, on the thread's
// team if it has one.
template <typename Fn>
void parallel_for(int64_t n, int64_t grain, const Fn& fn) {
  const auto loop = [&](int64_t from, int64_t to) { detail::intra_op_for(from, to, grain, fn); };
  if (!LoopTeam::divides(n, grain, loop)) loop(0, n);
}

}  // namespace cohort
