// How a loop stands in the sources once and runs on CPUs and on CUDA's cards. For files that are compiled once an
// instruction set (COHORT_ISA) and once for CUDA: nothing of the standard library here.
#pragma once

#include <stdint.h>

#include "ops/kernels/reach.h"

// A CPU runs a loop as it is. On a card each thread takes some of its elements (COHORT_EACH), or each block takes some
// of its rows and each thread some of a row's elements; COHORT_ONCE is what one thread of a block does.
#ifdef __CUDACC__
#define COHORT_LOOP __global__ void
#define COHORT_ON_DEVICE __device__
#define COHORT_MATH(function) ::function
#define COHORT_EACH(i, n) \
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x)
#define COHORT_EACH_ROW(i, n) for (int64_t i = blockIdx.x; i < n; i += gridDim.x)
#define COHORT_EACH_IN_ROW(i, n) for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
#define COHORT_ONCE if (threadIdx.x == 0)
#else
#define COHORT_LOOP inline void
#define COHORT_ON_DEVICE
#define COHORT_MATH(function) __builtin_##function
#define COHORT_EACH(i, n) for (int64_t i = 0; i < n; ++i)
#define COHORT_EACH_ROW(i, n) COHORT_EACH(i, n)
#define COHORT_EACH_IN_ROW(i, n) COHORT_EACH(i, n)
#define COHORT_ONCE
#endif

namespace cohort::kernels::COHORT_ISA {

namespace {

// The threads of a block that adds up a row.
constexpr int kLanes = 256;

#ifdef __CUDACC__
// A sum over a row of run_lanes(): each thread adds up its own elements, then they are added in pairs. The order
// depends on the length of the row alone.
class RowSum {
 public:
  __device__ void add(int64_t /*element*/, double x) { own_ += x; }

  // Returns the sum, to all threads of the block, which all have to call it.
  __device__ double total() const {
    __shared__ double lanes[kLanes];
    __syncthreads();  // the total before has been read
    lanes[threadIdx.x] = own_;
    for (unsigned half = kLanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half) lanes[threadIdx.x] += lanes[threadIdx.x + half];
    }
    __syncthreads();
    return lanes[0];
  }

 private:
  double own_ = 0.0;
};

// Begins a kernel on the calling thread's card and stream.
template <auto kLoop, typename... Args>
void launch(int64_t blocks, int64_t threads, Args... args) {
  kLoop<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0,
          static_cast<cudaStream_t>(cuda::current_stream())>>>(args...);
  cuda::require_launched(static_cast<int>(cudaGetLastError()));
}

// Begins a loop over n elements.
template <auto kLoop, typename... Args>
void run(int64_t n, Args... args) {
  constexpr int64_t kThreads = 256;
  constexpr int64_t kMostBlocks = 4096;
  if (n == 0) return;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  launch<kLoop>(blocks < kMostBlocks ? blocks : kMostBlocks, kThreads, n, args...);
}

constexpr int64_t kMostRowBlocks = 1 << 16;

// Begins a loop over n rows of so many elements.
template <auto kLoop, typename... Args>
void run_rows(int64_t n, int64_t width, Args... args) {
  constexpr int64_t kWarp = 32;
  constexpr int64_t kMostThreads = 256;
  if (n == 0 || width == 0) return;
  const int64_t threads = (width + kWarp - 1) / kWarp * kWarp;
  launch<kLoop>(n < kMostRowBlocks ? n : kMostRowBlocks, threads < kMostThreads ? threads : kMostThreads, n, args...);
}

// Begins a loop over n rows that are added up.
template <auto kLoop, typename... Args>
void run_lanes(int64_t n, Args... args) {
  if (n == 0) return;
  launch<kLoop>(n < kMostRowBlocks ? n : kMostRowBlocks, kLanes, n, args...);
}
#else
// The same sum, in the same order.
class RowSum {
 public:
  void add(int64_t element, double x) { lanes_[element % kLanes] += x; }

  double total() {
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes_[i] += lanes_[i + half];
    }
    return lanes_[0];
  }

 private:
  double lanes_[kLanes] = {};
};

template <auto kLoop, typename... Args>
inline void run(int64_t n, Args... args) {
  kLoop(n, args...);
}
template <auto kLoop, typename... Args>
inline void run_rows(int64_t n, int64_t /*width*/, Args... args) {
  kLoop(n, args...);
}
template <auto kLoop, typename... Args>
inline void run_lanes(int64_t n, Args... args) {
  kLoop(n, args...);
}
#endif

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
