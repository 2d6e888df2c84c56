#include "ops/kernels/kernels.h"

#include "base/fail.h"
#include "ops/kernels/choose.h"
#include "ops/kernels/entropy.h"
#include "ops/kernels/pooling.h"
#include "ops/kernels/vector_table.h"

namespace cohort::kernels {

namespace {

const Table& best_table() {
  static const Table& best = choose(best_isa(), baseline::kTable, avx2::kTable, avx512::kTable);
  return best;
}

// Calls visit with the kernels of the dtype.
template <typename Visit>
auto with_dtype(c10::ScalarType dtype, const char* what, const Visit& visit) {
  if (dtype == c10::ScalarType::Float) return visit(best_table().f32);
  if (dtype == c10::ScalarType::Double) return visit(best_table().f64);
  fail<InvalidArgument>("[kernels] ", what, ": dtype ", c10::toString(dtype), " came, Float or Double was wanted");
}

}  // namespace

void sum_into(void* dst, const void* const* sources, int count, int64_t n, c10::ScalarType dtype) {
  if (count < 1) fail<InvalidArgument>("[kernels] sum_into: ", count, " sources came, at least 1 was wanted");
  with_dtype(dtype, "sum_into",
             [&]<typename T>(const Kernels<T>& kernels) { kernels.sum_into(static_cast<T*>(dst), sources, count, n); });
}

void add_into(void* dst, const void* src, int64_t n, c10::ScalarType dtype) {
  with_dtype(dtype, "add_into", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.add_into(static_cast<T*>(dst), static_cast<const T*>(src), n);
  });
}

void scale(void* dst, double factor, int64_t n, c10::ScalarType dtype) {
  with_dtype(dtype, "scale", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.scale(static_cast<T*>(dst), static_cast<T>(factor), n);
  });
}

double squared_norm(const void* src, int64_t n, c10::ScalarType dtype) {
  return with_dtype(dtype, "squared_norm", [&]<typename T>(const Kernels<T>& kernels) {
    return kernels.squared_norm(static_cast<const T*>(src), n);
  });
}

bool all_finite(const void* src, int64_t n, c10::ScalarType dtype) {
  return with_dtype(dtype, "all_finite", [&]<typename T>(const Kernels<T>& kernels) {
    return kernels.all_finite(static_cast<const T*>(src), n);
  });
}

void add_bias(void* y, const void* bias, const Columns& size, bool relu, c10::ScalarType dtype) {
  with_dtype(dtype, "add_bias", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.add_bias(static_cast<T*>(y), static_cast<const T*>(bias), size.rows, size.columns, size.stride, relu);
  });
}

void bias_gradient(void* dst, const void* gradient, const void* y, void* sums, const Columns& size,
                   c10::ScalarType dtype) {
  with_dtype(dtype, "bias_gradient", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.bias_gradient(static_cast<T*>(dst), static_cast<const T*>(gradient), static_cast<const T*>(y),
                          static_cast<T*>(sums), size.rows, size.columns, size.stride);
  });
}

void entropy(void* losses, void* shifts, const Labelled& of, c10::ScalarType dtype) {
  with_dtype(dtype, "entropy", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.entropy(static_cast<T*>(losses), static_cast<T*>(shifts), static_cast<const T*>(of.logits), of.labels,
                    of.rows, of.classes);
  });
}

void entropy_gradient(void* dst, const void* factors, int64_t step, const void* shifts, const Labelled& of,
                      c10::ScalarType dtype) {
  with_dtype(dtype, "entropy_gradient", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.entropy_gradient(static_cast<T*>(dst), static_cast<const T*>(factors), step,
                             static_cast<const T*>(of.logits), of.labels, static_cast<const T*>(shifts), of.rows,
                             of.classes);
  });
}

void max_pool(void* y, uint8_t* places, const void* image, const void* bias, const PoolShape& shape, bool relu,
              c10::ScalarType dtype) {
  with_dtype(dtype, "max_pool", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.max_pool(static_cast<T*>(y), places, static_cast<const T*>(image), static_cast<const T*>(bias), shape,
                     relu);
  });
}

void max_pool_gradient(void* dst, void* sums, const void* gradient, const void* y, const uint8_t* places,
                       const PoolShape& shape, c10::ScalarType dtype) {
  with_dtype(dtype, "max_pool_gradient", [&]<typename T>(const Kernels<T>& kernels) {
    kernels.max_pool_gradient(static_cast<T*>(dst), static_cast<T*>(sums), static_cast<const T*>(gradient),
                              static_cast<const T*>(y), places, shape);
  });
}

}  // namespace cohort::kernels
