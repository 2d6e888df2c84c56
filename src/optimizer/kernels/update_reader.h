// The update kernels' way of reading a gradient. Compiled once an instruction set and once for CUDA: nothing of the
// standard library here.
#pragma once

#include "base/kernels/loops.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

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
