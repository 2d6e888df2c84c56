// What the update kernels of all rules do: how they read a gradient, and what surrounds a rule's own arithmetic.
// Compiled once an instruction set and once for CUDA: nothing of the standard library here.
#pragma once

#include "ops/kernels/loops.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

COHORT_ON_DEVICE inline float root(float x) {
  return COHORT_MATH(sqrtf)(x);
}
COHORT_ON_DEVICE inline double root(double x) {
  return COHORT_MATH(sqrt)(x);
}

// Returns the arguments with the numbers that lie in memory, if there are some there.
COHORT_ON_DEVICE inline CommonArgs now(CommonArgs in) {
  if (in.numbers == nullptr) return in;
  in.scale = in.numbers->scale;
  in.shrink = in.numbers->shrink;
  in.keep = in.numbers->keep;
  in.overwrite = in.numbers->overwrites != 0.0;
  return in;
}
// Returns those of the rule: the ones that have come, or the ones in memory.
template <typename Args>
COHORT_ON_DEVICE inline Args now(const CommonArgs& in, const Args& given) {
  return in.numbers == nullptr ? given : *reinterpret_cast<const Args*>(in.numbers + 1);
}

// The gradient as it is read, in the type of the arithmetic. A NaN passes the clip, because both comparisons are false.
// Without decay nothing is added, also beside a parameter that is not finite.
template <typename T, bool kDecay>
struct Reader {
  COHORT_ON_DEVICE explicit Reader(const CommonArgs& in)
      : scale(static_cast<T>(in.factor == nullptr ? in.scale : in.scale * *in.factor)),
        high(in.clip > 0.0 ? static_cast<T>(in.clip) : static_cast<T>(__builtin_inf())),
        low(-high),
        decay(static_cast<T>(in.decay)) {}

  COHORT_ON_DEVICE T operator()(T g, T p) const {
    T x = g * scale;
    x = x < low ? low : x;
    x = x > high ? high : x;
    if constexpr (kDecay) {
      const T decayed = x + decay * p;
      x = decay == T(0) ? x : decayed;
    }
    return x;
  }

  T scale;
  T high;
  T low;
  T decay;
};

// What comes before and after a rule's own arithmetic. Nothing here is a branch, so that loops stay vector code.
template <typename T, bool kAverages>
struct Surrounding {
  COHORT_ON_DEVICE explicit Surrounding(const CommonArgs& in)
      : shrink(static_cast<T>(in.shrink)),
        keep_before(static_cast<T>(in.keep_before)),
        fresh_before(static_cast<T>(1.0 - in.keep_before)),
        keep(static_cast<T>(in.keep)),
        fresh(static_cast<T>(1.0 - in.keep)) {}

  // Returns the parameter that the rule gets. An average that does not move stays as it is also beside a parameter that
  // is not finite.
  COHORT_ON_DEVICE T before(T p, T& average) const {
    if constexpr (kAverages) {
      const T moved = keep_before * average + fresh_before * p;
      average = fresh_before == T(0) ? average : moved;
    }
    return p * shrink;
  }
  // Moves the average by the parameter that the rule has made.
  COHORT_ON_DEVICE void after(T p, T& average) const {
    if constexpr (kAverages) average = keep * average + fresh * p;
  }

  T shrink;
  T keep_before;
  T fresh_before;
  T keep;
  T fresh;
};

// Returns whether the update is left out.
COHORT_ON_DEVICE inline bool leaves_out(const CommonArgs& in) {
  return in.only_if != nullptr && !*in.only_if;
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
