// The casts around the kernels where a CPU updates parameters of half precision.
#pragma once

#include "optimizer/kernels/half.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

template <typename P>
void widen_all(float* __restrict to, const P* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = widen(from[i]);
}

template <typename P>
void narrow_all(P* __restrict to, const float* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) narrow(from[i], to[i]);
}

template <typename P>
void follow_all(float* __restrict master, const P* __restrict p, int64_t n) {
  for (int64_t i = 0; i < n; ++i) master[i] = followed(master[i], p[i]);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
