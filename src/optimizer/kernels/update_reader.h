// The update kernels' way of reading a gradient, and of going through the elements. Compiled once an instruction set
// and once for CUDA: nothing of the standard library here.
#pragma once

#include "optimizer/kernels/update_table.h"

// A loop stands here once. A CPU runs it as it is; on a card each thread takes some of its elements.
#ifdef __CUDACC__
#define COHORT_LOOP __global__ void
#define COHORT_ON_DEVICE __device__
#define COHORT_MATH(function) ::function
#define COHORT_EACH(i, n) \
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x)
#else
#define COHORT_LOOP inline void
#define COHORT_ON_DEVICE
#define COHORT_MATH(function) __builtin_##function
#define COHORT_EACH(i, n) for (int64_t i = 0; i < n; ++i)
#endif

namespace cohort::kernels::COHORT_ISA {

namespace {

#ifdef __CUDACC__
constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 4096;

// Begins a loop over n elements on the calling thread's card and stream.
template <auto kLoop, typename... Args>
void run(int64_t n, Args... args) {
  if (n == 0) return;
  const int64_t blocks = (n + kThreads - 1) / kThreads;
  kLoop<<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0,
          static_cast<cudaStream_t>(current_stream())>>>(n, args...);
  require_launched(static_cast<int>(cudaGetLastError()));
}
#else
template <auto kLoop, typename... Args>
inline void run(int64_t n, Args... args) {
  kLoop(n, args...);
}
#endif

COHORT_ON_DEVICE inline float root(float x) {
  return COHORT_MATH(sqrtf)(x);
}
COHORT_ON_DEVICE inline double root(double x) {
  return COHORT_MATH(sqrt)(x);
}

// GradientArgs in the parameters' type. A NaN passes the clip, because both comparisons are false.
template <typename T, bool kDecay>
struct Reader {
  COHORT_ON_DEVICE explicit Reader(const GradientArgs& in)
      : scale(static_cast<T>(in.factor == nullptr ? in.scale : in.scale * *in.factor)),
        high(in.clip > 0.0 ? static_cast<T>(in.clip) : static_cast<T>(__builtin_inf())),
        low(-high),
        decay(static_cast<T>(in.decay)) {}

  COHORT_ON_DEVICE T operator()(T g, T p) const {
    T x = g * scale;
    x = x < low ? low : x;
    x = x > high ? high : x;
    if constexpr (kDecay) x += decay * p;
    return x;
  }

  T scale;
  T high;
  T low;
  T decay;
};

// Returns whether the update is left out.
COHORT_ON_DEVICE inline bool leaves_out(const GradientArgs& in) {
  return in.only_if != nullptr && !*in.only_if;
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
