// What each compiled variant of the vector kernels provides.
#pragma once

#include <cstdint>

namespace cohort::kernels {

template <typename T>
struct VectorTable {
  void (*sum_into)(T* dst, const void* const* sources, int count, int64_t size);
  void (*scale)(T* dst, double factor, int64_t size);
  double (*squared_norm)(const T* src, int64_t size);
};

struct VectorTables {
  VectorTable<float> f32;
  VectorTable<double> f64;
};

VectorTables vector_tables_baseline();
VectorTables vector_tables_avx2();
VectorTables vector_tables_avx512();

}  // namespace cohort::kernels
