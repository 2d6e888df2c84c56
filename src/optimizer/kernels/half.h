// Numbers of half precision become float32 and back, rounded to the nearest, ties to even; and the parameters as rules
// see them. Compiled once an instruction set and once for CUDA: nothing of the standard library here.
#pragma once

#include "ops/kernels/loops.h"
#include "optimizer/kernels/update_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

COHORT_ON_DEVICE inline uint32_t bits_of(float x) {
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &x, sizeof x);
  return bits;
}
COHORT_ON_DEVICE inline float float_of(uint32_t bits) {
  float x = 0.0F;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}

COHORT_ON_DEVICE inline float widen(float x) {
  return x;
}
COHORT_ON_DEVICE inline double widen(double x) {
  return x;
}
COHORT_ON_DEVICE inline void narrow(float x, float& to) {
  to = x;
}
COHORT_ON_DEVICE inline void narrow(double x, double& to) {
  to = x;
}

COHORT_ON_DEVICE inline float widen(BFloat16 x) {
  return float_of(static_cast<uint32_t>(x.bits) << 16);
}
COHORT_ON_DEVICE inline void narrow(float x, BFloat16& to) {
  const uint32_t bits = bits_of(x);
  const uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
  to.bits = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? 0x7fc0U : rounded >> 16);
}

#ifdef __CUDACC__
__device__ inline float widen(Half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
__device__ inline void narrow(float x, Half& to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
}
#else
inline float widen(Half x) {
  const uint32_t sign = (x.bits & 0x8000U) << 16;
  const uint32_t size = x.bits & 0x7fffU;
  if (size < 0x0400U) return float_of(sign | bits_of(static_cast<float>(size) * 0x1p-24F));
  const uint32_t bits = size << 13;
  return float_of(sign | (size < 0x7c00U ? bits + (112U << 23) : bits | 0x7f800000U));
}
inline void narrow(float x, Half& to) {
  const uint32_t sign = bits_of(x) >> 16 & 0x8000U;
  uint32_t size = bits_of(x) & 0x7fffffffU;
  if (size > 0x7f800000U) {
    size = 0x7e00U;
  } else if (size >= 0x47800000U) {  // 65536 and more
    size = 0x7c00U;
  } else if (size < 0x38800000U) {  // below 2^-14: multiples of 2^-24, which is what 0.5 is rounded to
    size = bits_of(float_of(size) + 0.5F) - bits_of(0.5F);
  } else {
    size = (size + 0xfffU + (size >> 13 & 1U) - (112U << 23)) >> 13;
  }
  to.bits = static_cast<uint16_t>(sign | size);
}
#endif

// Returns the number that a rule updates: the master, unless something else has written to the parameter since.
template <typename P>
COHORT_ON_DEVICE inline float followed(float master, P p) {
  P rounded;
  narrow(master, rounded);
  return rounded.bits == p.bits ? master : widen(p);
}

// Parameter i as the rule gets it, and what is stored of it.
COHORT_ON_DEVICE inline float weight_at(const float* p, int64_t i, const CommonArgs& /*in*/) {
  return p[i];
}
COHORT_ON_DEVICE inline double weight_at(const double* p, int64_t i, const CommonArgs& /*in*/) {
  return p[i];
}
template <typename P>
COHORT_ON_DEVICE inline float weight_at(const P* p, int64_t i, const CommonArgs& in) {
  return in.master == nullptr ? widen(p[i]) : followed(in.master[i], p[i]);
}
COHORT_ON_DEVICE inline void store_at(float x, float* p, int64_t i, const CommonArgs& /*in*/) {
  p[i] = x;
}
COHORT_ON_DEVICE inline void store_at(double x, double* p, int64_t i, const CommonArgs& /*in*/) {
  p[i] = x;
}
template <typename P>
COHORT_ON_DEVICE inline void store_at(float x, P* p, int64_t i, const CommonArgs& in) {
  if (in.master != nullptr) in.master[i] = x;
  narrow(x, p[i]);
}

}  // namespace

}  // namespace cohort::kernels::COHORT_ISA
