// The kernels as pointers, one table an instruction set. It has only declarations: it is compiled with other flags in
// each of the three files, so no inline function may stand here.
#pragma once

#include <stdint.h>

#include "ops/kernels/pool_shape.h"

namespace cohort::kernels {

template <typename T>
struct Kernels {
  void (*sum_into)(T* dst, const void* const* sources, int count, int64_t n);
  void (*add_into)(T* dst, const T* src, int64_t n);
  void (*scale)(T* dst, T factor, int64_t n);
  double (*squared_norm)(const T* src, int64_t n);
  bool (*all_finite)(const T* src, int64_t n);
  void (*add_bias)(T* y, const T* bias, int64_t rows, int64_t columns, int64_t stride, bool relu);
  void (*bias_gradient)(T* dst, const T* gradient, const T* y, T* sums, int64_t rows, int64_t columns, int64_t stride);
  void (*entropy)(T* losses, T* shifts, const T* logits, const int64_t* labels, int64_t rows, int64_t columns);
  void (*entropy_gradient)(T* dst, const T* factors, int64_t step, const T* logits, const int64_t* labels,
                           const T* shifts, int64_t rows, int64_t columns);
  void (*max_pool)(T* y, uint8_t* places, const T* image, const T* bias, const PoolShape& shape, bool relu);
  void (*max_pool_gradient)(T* dst, T* sums, const T* gradient, const T* y, const uint8_t* places,
                            const PoolShape& shape);
};

struct Table {
  Kernels<float> f32;
  Kernels<double> f64;
};

namespace baseline {
extern const Table kTable;
}
namespace avx2 {
extern const Table kTable;
}
namespace avx512 {
extern const Table kTable;
}

}  // namespace cohort::kernels
