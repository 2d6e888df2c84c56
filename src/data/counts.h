// Arithmetic of numbers of elements, which may be as large as int64_t goes.
#pragma once

#include <cstdint>
#include <limits>

namespace cohort {

// Returns count / size, rounded up, for count >= 0 and size > 0.
inline int64_t ceil_div(int64_t count, int64_t size) {
  return count / size + (count % size != 0 ? 1 : 0);
}

// Returns the sum of two numbers that are not negative, or the largest number if it is larger.
inline int64_t bounded_sum(int64_t one, int64_t two) {
  int64_t sum = 0;
  return __builtin_add_overflow(one, two, &sum) ? std::numeric_limits<int64_t>::max() : sum;
}

// Returns the product of two numbers that are not negative, or the largest number if it is larger.
inline int64_t bounded_product(int64_t one, int64_t two) {
  int64_t product = 0;
  return __builtin_mul_overflow(one, two, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace cohort
