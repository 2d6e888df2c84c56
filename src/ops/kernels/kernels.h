// Passes over raw memory on the CPU, as vector code for the CPU at hand. The exchange and the update of flat
// buffers are made of them.
//
// They know float32 and float64 (has_kernels); another dtype is an InvalidArgument. Thread-safe; none starts threads.
// The results are the same bits on every CPU, and those of the elementwise passes do not depend on how a range is cut
// into calls. Pointers need no alignment beyond their type's; 64 bytes are fastest. NaN, infinities and denormals are
// IEEE's.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace cohort::kernels {

inline bool has_kernels(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::Float || dtype == c10::ScalarType::Double;
}

// Computes dst = sources[0] + sources[1] + ..., added from left to right in one pass. count is 1 or more. dst may be
// one of the sources, but not overlap one otherwise.
void sum_into(void* dst, const void* const* sources, int count, int64_t n, c10::ScalarType dtype);

// Computes dst += src. Both may be the same memory, but must not overlap otherwise.
void add_into(void* dst, const void* src, int64_t n, c10::ScalarType dtype);

// Computes dst *= factor, where the factor is rounded to the dtype first.
void scale(void* dst, double factor, int64_t n, c10::ScalarType dtype);

// Returns the sum of the squares, computed in float64 in an order that depends on n alone.
double squared_norm(const void* src, int64_t n, c10::ScalarType dtype);

// Returns whether no element is NaN or infinite. Stops soon after the first one that is.
bool all_finite(const void* src, int64_t n, c10::ScalarType dtype);

// Some columns of a matrix: rows of `columns` elements, whose beginnings are `stride` elements apart.
struct Columns {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

// Computes y = y + bias, or max(y + bias, 0), for every row.
void add_bias(void* y, const void* bias, const Columns& size, bool relu, c10::ScalarType dtype);

// The gradients of add_bias. With `y`, its result with ReLU, computes dst = gradient where y > 0 and 0 elsewhere; dst
// may be the gradient. Without (null) nothing is stored in dst. `sums` gets the sums of the columns of that.
void bias_gradient(void* dst, const void* gradient, const void* y, void* sums, const Columns& size,
                   c10::ScalarType dtype);

}  // namespace cohort::kernels
