// The update kernels' way of reading a gradient. Compiled once an instruction set: nothing of the standard library
// here.
#pragma once

#include "optimizer/kernels/update_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

inline float root(float x) {
  return __builtin_sqrtf(x);
}
inline double root(double x) {
  return __builtin_sqrt(x);
}

// GradientArgs in the parameters' type. A NaN passes the clip, because both comparisons are false.
template <typename T, bool kDecay>
struct Reader {
  explicit Reader(const GradientArgs& in)
      : scale(static_cast<T>(in.scale)),
        high(in.clip > 0.0 ? static_cast<T>(in.clip) : static_cast<T>(__builtin_inf())),
        low(-high),
        decay(static_cast<T>(in.decay)) {}

  T operator()(T g, T p) const {
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

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
