// The vector kernels' one source, compiled once a variant with other flags. COHORT_VARIANT is the variant's name. Only plain
// loops over raw pointers: a function of the standard library compiled here for AVX-512 could end up in other callers.
#include "base/kernels/vector_table.h"

#define COHORT_JOIN_(a, b) a##b
#define COHORT_JOIN(a, b) COHORT_JOIN_(a, b)

namespace cohort::kernels {
namespace {

template <typename T>
void sum_into(T* dst, const void* const* sources, int count, int64_t size) {
  const T* a = static_cast<const T*>(sources[0]);
  if (count == 1) {
    for (int64_t i = 0; i < size; ++i) dst[i] = a[i];
    return;
  }
  const T* b = static_cast<const T*>(sources[1]);
  if (count == 2) {
    for (int64_t i = 0; i < size; ++i) dst[i] = a[i] + b[i];
    return;
  }
  const T* c = static_cast<const T*>(sources[2]);
  if (count == 3) {
    for (int64_t i = 0; i < size; ++i) dst[i] = a[i] + b[i] + c[i];
    return;
  }
  // Four and more: blocks small enough to stay in registers and the first-level cache, so that dst may be a source.
  constexpr int64_t kBlock = 256;
  for (int64_t at = 0; at < size; at += kBlock) {
    const int64_t n = size - at < kBlock ? size - at : kBlock;
    T sum[kBlock];
    for (int64_t i = 0; i < n; ++i) sum[i] = a[at + i] + b[at + i] + c[at + i];
    for (int s = 3; s < count; ++s) {
      const T* more = static_cast<const T*>(sources[s]) + at;
      for (int64_t i = 0; i < n; ++i) sum[i] += more[i];
    }
    for (int64_t i = 0; i < n; ++i) dst[at + i] = sum[i];
  }
}

template <typename T>
void scale(T* dst, double factor, int64_t size) {
  const T f = static_cast<T>(factor);
  for (int64_t i = 0; i < size; ++i) dst[i] *= f;
}

template <typename T>
double squared_norm(const T* src, int64_t size) {
  constexpr int64_t kLanes = 16;
  double lanes[kLanes] = {};
  const int64_t whole = size / kLanes * kLanes;
  for (int64_t at = 0; at < whole; at += kLanes) {
    for (int64_t i = 0; i < kLanes; ++i) lanes[i] += static_cast<double>(src[at + i]) * static_cast<double>(src[at + i]);
  }
  for (int64_t i = whole; i < size; ++i) lanes[i - whole] += static_cast<double>(src[i]) * static_cast<double>(src[i]);
  double total = 0.0;
  for (const double lane : lanes) total += lane;
  return total;
}

}  // namespace

VectorTables COHORT_JOIN(vector_tables_, COHORT_VARIANT)() {
  return {{sum_into<float>, scale<float>, squared_norm<float>}, {sum_into<double>, scale<double>, squared_norm<double>}};
}

}  // namespace cohort::kernels
