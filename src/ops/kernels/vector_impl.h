// The loops of kernels.h, for the instruction set COHORT_ISA. Only raw pointers and built-in types may stand here:
// anything inline from a header would be compiled for this instruction set and could be linked in everywhere.
#include <stddef.h>

#include "ops/kernels/vector_table.h"

// A destination may be the very memory of a source, but never overlap it otherwise: no iteration depends on another.
#if defined(__clang__)
#define COHORT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define COHORT_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace cohort::kernels::COHORT_ISA {

namespace {

// The number of elements that general sums keep on the stack.
constexpr int64_t kBlock = 512;

template <typename T>
const T* source_at(const void* const* sources, int index) {
  return static_cast<const T*>(sources[index]);
}

// Adds up some sources from left to right.
template <typename T, typename... Source>
void sum_few(T* dst, int64_t n, const Source*... sources) {
  COHORT_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dst[i] = (... + sources[i]);
}

// Adds any number of sources. The sum of a block is built aside and stored at the end, so dst may be any of the
// sources.
template <typename T>
void sum_many(T* dst, const void* const* sources, int count, int64_t n) {
  T sum[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t size = n - at < kBlock ? n - at : kBlock;
    sum_few(sum, size, source_at<T>(sources, 0) + at, source_at<T>(sources, 1) + at, source_at<T>(sources, 2) + at,
            source_at<T>(sources, 3) + at);
    for (int s = 4; s < count; ++s) sum_few(sum, size, sum, source_at<T>(sources, s) + at);
    for (int64_t i = 0; i < size; ++i) dst[at + i] = sum[i];
  }
}

template <typename T>
void sum_into(T* dst, const void* const* sources, int count, int64_t n) {
  const T* first = source_at<T>(sources, 0);
  switch (count) {
    case 1:
      if (dst != first) __builtin_memcpy(dst, first, static_cast<size_t>(n) * sizeof(T));
      return;
    case 2:
      return sum_few(dst, n, first, source_at<T>(sources, 1));
    case 3:
      return sum_few(dst, n, first, source_at<T>(sources, 1), source_at<T>(sources, 2));
    case 4:
      return sum_few(dst, n, first, source_at<T>(sources, 1), source_at<T>(sources, 2), source_at<T>(sources, 3));
    default:
      return sum_many(dst, sources, count, n);
  }
}

template <typename T>
void add_into(T* dst, const T* src, int64_t n) {
  sum_few(dst, n, dst, src);
}

template <typename T>
void scale(T* dst, T factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] *= factor;
}

// Adds up term(x) of each element. Keeps sixteen running sums, whatever the width of a vector, and adds them up in one
// fixed tree.
template <typename T, typename Term>
inline double sum_in_lanes(const T* src, int64_t n, const Term& term) {
  double lanes[16] = {};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] += term(static_cast<double>(src[i + lane]));
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(static_cast<double>(src[i]));
  for (int width = 8; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <typename T>
double squared_norm(const T* src, int64_t n) {
  return sum_in_lanes(src, n, [](double x) { return x * x; });
}

template <typename T>
bool all_finite(const T* src, int64_t n) {
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t end = n - at < kBlock ? n : at + kBlock;
    int odd = 0;
    for (int64_t i = at; i < end; ++i) odd |= !(src[i] - src[i] == T(0));
    if (odd != 0) return false;
  }
  return true;
}

template <typename T>
void add_bias(T* y, const T* bias, int64_t rows, int64_t columns, int64_t stride, bool relu) {
  for (int64_t row = 0; row < rows; ++row, y += stride) {
    if (relu) {
      COHORT_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) {
        const T sum = y[i] + bias[i];
        y[i] = sum < T(0) ? T(0) : sum;
      }
    } else {
      COHORT_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) y[i] += bias[i];
    }
  }
}

// Passes a row's gradient on, and adds it to the sums.
template <typename T>
void row_gradient(T* dst, const T* gradient, const T* y, T* sums, int64_t columns) {
  if (y == nullptr) {
    sum_few(sums, columns, sums, gradient);
    return;
  }
  COHORT_INDEPENDENT
  for (int64_t i = 0; i < columns; ++i) {
    const T own = y[i] <= T(0) ? T(0) : gradient[i];
    dst[i] = own;
    sums[i] += own;
  }
}

// Sums of some rows each are added up, so that the error grows more slowly than the number of rows.
template <typename T>
void bias_gradient(T* dst, const T* gradient, const T* y, T* sums, int64_t rows, int64_t columns, int64_t stride) {
  constexpr int64_t kRows = 64;
  T part[kBlock];
  for (int64_t at = 0; at < columns; at += kBlock) {
    const int64_t size = columns - at < kBlock ? columns - at : kBlock;
    for (int64_t i = 0; i < size; ++i) sums[at + i] = T(0);
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      const int64_t end = rows - begin < kRows ? rows : begin + kRows;
      for (int64_t i = 0; i < size; ++i) part[i] = T(0);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t place = row * stride + at;
        row_gradient(dst + place, gradient + place, y == nullptr ? y : y + place, part, size);
      }
      sum_few(sums + at, size, sums + at, part);
    }
  }
}

// Adds numbers up in lanes, and a few in their order.
template <typename T>
double sum_of(const T* src, int64_t n) {
  if (n >= 16) return sum_in_lanes(src, n, [](double x) { return x; });
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(src[i]);
  return sum;
}

// Returns exp(x) of an x that is not positive, within two units of the last place; 0 where that is no normal number. x
// is n log(2) + r with |r| at most half of log(2) (Cody and Waite, 1980), which a polynomial takes; adding 1.5 * 2^23
// rounds to n and leaves it in the sum's last bits.
inline float exponential(float x) {
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r * r + r) + 1.0f;
  const uint32_t power = (__builtin_bit_cast(uint32_t, shifted) << 23) + (uint32_t{127} << 23);
  return x < -87.0f ? 0.0f : p * __builtin_bit_cast(float, power);
}

// The same with 1.5 * 2^52 and Taylor's polynomial.
inline double exponential(double x) {
  const double shifted = x * 1.4426950408889634 + 6755399441055744.0;
  const double n = shifted - 6755399441055744.0;
  const double r = (x - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = (p * r * r + r) + 1.0;
  const uint64_t power = (__builtin_bit_cast(uint64_t, shifted) << 52) + (uint64_t{1023} << 52);
  return x < -708.0 ? 0.0 : p * __builtin_bit_cast(double, power);
}

// Returns the largest number but NaN, or the first one.
template <typename T>
T largest(const T* src, int64_t n) {
  T lanes[16];
  for (int lane = 0; lane < 16; ++lane) lanes[lane] = src[0];
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int lane = 0; lane < 16; ++lane) lanes[lane] = src[i + lane] > lanes[lane] ? src[i + lane] : lanes[lane];
  }
  T most = src[0];
  for (; i < n; ++i) most = src[i] > most ? src[i] : most;
  for (int lane = 0; n >= 16 && lane < 16; ++lane) most = lanes[lane] > most ? lanes[lane] : most;
  return most;
}

template <typename T>
void entropy(T* losses, T* shifts, const T* logits, const int64_t* labels, int64_t rows, int64_t columns) {
  T powers[kBlock];
  for (int64_t row = 0; row < rows; ++row, logits += columns) {
    const T most = largest(logits, columns);
    double sum = 0.0;
    for (int64_t at = 0; at < columns; at += kBlock) {
      const int64_t size = columns - at < kBlock ? columns - at : kBlock;
      for (int64_t i = 0; i < size; ++i) powers[i] = exponential(logits[at + i] - most);
      sum += sum_of(powers, size);
    }
    const T log = static_cast<T>(__builtin_log(sum));
    shifts[2 * row] = most;
    shifts[2 * row + 1] = log;
    losses[row] = log - (logits[labels[row]] - most);
  }
}

template <typename T>
void entropy_gradient(T* dst, const T* factors, int64_t step, const T* logits, const int64_t* labels, const T* shifts,
                      int64_t rows, int64_t columns) {
  for (int64_t row = 0; row < rows; ++row, logits += columns, dst += columns) {
    const T most = shifts[2 * row], log = shifts[2 * row + 1], factor = factors[row * step];
    COHORT_INDEPENDENT
    for (int64_t i = 0; i < columns; ++i) dst[i] = exponential((logits[i] - most) - log) * factor;
    dst[labels[row]] -= factor;
  }
}

// The part of a window that lies in the image: rows and columns of the window, whose first element, in the image or
// not, is `corner`, counted in elements of the image.
struct Under {
  int64_t corner, top, bottom, left, right;
};

inline Under under_window(const PoolShape& shape, int64_t down, int64_t across) {
  const int64_t y = down * shape.stride_down - shape.above;
  const int64_t x = across * shape.stride_across - shape.left;
  const int64_t below = shape.height - y, right = shape.width - x;
  return {.corner = y * shape.width + x,
          .top = y < 0 ? -y : 0,
          .bottom = below < shape.window_height ? below : shape.window_height,
          .left = x < 0 ? -x : 0,
          .right = right < shape.window_width ? right : shape.window_width};
}

// Stores some channels of one window: kSize or, if that is 0, `size`, less than 32. Numbers that the compiler knows
// keep them in registers.
template <int kSize, typename T>
inline void pool_window(T* y, uint8_t* places, const T* image, const Under& under, const PoolShape& shape,
                        int64_t size) {
  T most[kSize > 0 ? kSize : 32], where[kSize > 0 ? kSize : 32];
  if (kSize > 0) size = kSize;
  const T* row = image + (under.corner + under.top * shape.width) * shape.channels;
  for (int64_t i = 0; i < size; ++i) most[i] = row[under.left * shape.channels + i];
  for (int64_t i = 0; i < size; ++i) where[i] = static_cast<T>(under.top * shape.window_width + under.left);
  for (int64_t down = under.top; down < under.bottom; ++down, row += shape.width * shape.channels) {
    for (int64_t across = under.left; across < under.right; ++across) {
      const T* const element = row + across * shape.channels;
      const T place = static_cast<T>(down * shape.window_width + across);
      for (int64_t i = 0; i < size; ++i) {
        const bool larger = element[i] > most[i] || element[i] != element[i];
        most[i] = larger ? element[i] : most[i];
        where[i] = larger ? place : where[i];
      }
    }
  }
  for (int64_t i = 0; i < size; ++i) y[i] = most[i];
  for (int64_t i = 0; i < size; ++i) places[i] = static_cast<uint8_t>(where[i]);
}

template <typename T>
void max_pool(T* y, uint8_t* places, const T* image, const T* bias, const PoolShape& shape, bool relu) {
  const int64_t channels = shape.channels;
  for (int64_t down = 0; down < shape.windows_down; ++down) {
    for (int64_t across = 0; across < shape.windows_across; ++across, y += channels, places += channels) {
      const Under under = under_window(shape, down, across);
      int64_t at = 0;
      for (; at + 64 <= channels; at += 64) pool_window<64>(y + at, places + at, image + at, under, shape, 64);
      for (; at + 32 <= channels; at += 32) pool_window<32>(y + at, places + at, image + at, under, shape, 32);
      if (at < channels) pool_window<0>(y + at, places + at, image + at, under, shape, channels - at);
      if (bias != nullptr) {
        add_bias(y, bias, 1, channels, 0, relu);
      } else if (relu) {
        COHORT_INDEPENDENT
        for (int64_t i = 0; i < channels; ++i) y[i] = y[i] < T(0) ? T(0) : y[i];
      }
    }
  }
}

// Adds at most kBlock channels of a window's gradient to the elements that they are of.
template <typename T>
void spread_window(T* dst, const T* gradient, const uint8_t* places, const Under& under, const PoolShape& shape,
                   int64_t size) {
  T where[kBlock];
  for (int64_t i = 0; i < size; ++i) where[i] = static_cast<T>(places[i]);
  for (int64_t row = under.top; row < under.bottom; ++row) {
    for (int64_t column = under.left; column < under.right; ++column) {
      T* const element = dst + (under.corner + row * shape.width + column) * shape.channels;
      const T place = static_cast<T>(row * shape.window_width + column);
      COHORT_INDEPENDENT
      for (int64_t i = 0; i < size; ++i) element[i] += where[i] == place ? gradient[i] : T(0);
    }
  }
}

template <typename T>
void max_pool_gradient(T* dst, T* sums, const T* gradient, const T* y, const uint8_t* places, const PoolShape& shape) {
  const int64_t channels = shape.channels;
  const int64_t step = y == nullptr ? 0 : channels;
  T own[kBlock];
  __builtin_memset(dst, 0, static_cast<size_t>(shape.height * shape.width * channels) * sizeof(T));
  for (int64_t i = 0; i < channels; ++i) sums[i] = T(0);
  for (int64_t down = 0; down < shape.windows_down; ++down) {
    for (int64_t across = 0; across < shape.windows_across; ++across) {
      const Under under = under_window(shape, down, across);
      for (int64_t at = 0; at < channels; at += kBlock) {
        const int64_t size = channels - at < kBlock ? channels - at : kBlock;
        const T* passed = gradient + at;
        row_gradient(own, passed, y == nullptr ? y : y + at, sums + at, size);
        if (y != nullptr) passed = own;
        spread_window(dst + at, passed, places + at, under, shape, size);
      }
      gradient += channels, places += channels, y += step;
    }
  }
}

template <typename T>
constexpr Kernels<T> kKernels = {sum_into<T>,         add_into<T>,      scale<T>,   squared_norm<T>,     all_finite<T>,
                                 add_bias<T>,         bias_gradient<T>, entropy<T>, entropy_gradient<T>, max_pool<T>,
                                 max_pool_gradient<T>};

}  // namespace

const Table kTable = {kKernels<float>, kKernels<double>};

}  // namespace cohort::kernels::COHORT_ISA
