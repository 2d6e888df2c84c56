// The pixel kernels' one source, compiled once an instruction set (COHORT_ISA) with other flags; see
// ops/kernels/vector_impl.h for why it uses nothing of the standard library.
#include "wings/vision/data/images/kernels/pixel_table.h"

namespace cohort::kernels::COHORT_ISA {

namespace {

typedef uint8_t Bytes __attribute__((vector_size(16)));
constexpr int64_t kSide = sizeof(Bytes);

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

inline int64_t at_most(int64_t x, int64_t limit) {
  return x < limit ? x : limit;
}

inline uint8_t to_byte(int32_t sum) {
  sum >>= kWeightBits;
  sum = sum < 0 ? 0 : sum;
  return static_cast<uint8_t>(sum > 255 ? 255 : sum);
}

// to[x] = the weighted sum of from[x], from[x + stride] and so on.
template <int kCount>
void weigh(const uint8_t* __restrict from, int64_t stride, const int32_t* __restrict weights, uint8_t* __restrict to,
           int64_t width) {
  for (int64_t x = 0; x < width; ++x) {
    int32_t sum = kHalf;
    for (int i = 0; i < kCount; ++i) sum += from[i * stride + x] * weights[i];
    to[x] = to_byte(sum);
  }
}

void weigh_many(const uint8_t* __restrict from, int64_t stride, const int32_t* __restrict weights, int64_t count,
                uint8_t* __restrict to, int64_t width) {
  constexpr int64_t kBlock = 256;
  int32_t sums[kBlock];
  for (int64_t begin = 0; begin < width; begin += kBlock) {
    const int64_t n = at_most(kBlock, width - begin);
    for (int64_t x = 0; x < n; ++x) sums[x] = kHalf;
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* __restrict const line = from + i * stride + begin;
      const int32_t weight = weights[i];
      for (int64_t x = 0; x < n; ++x) sums[x] += line[x] * weight;
    }
    for (int64_t x = 0; x < n; ++x) to[begin + x] = to_byte(sums[x]);
  }
}

void weigh_lines(const uint8_t* from, int64_t stride, const int32_t* weights, int64_t count, uint8_t* to,
                 int64_t width) {
  switch (count) {
    case 1:
      return weigh<1>(from, stride, weights, to, width);
    case 2:
      return weigh<2>(from, stride, weights, to, width);
    case 3:
      return weigh<3>(from, stride, weights, to, width);
    case 4:
      return weigh<4>(from, stride, weights, to, width);
    case 5:
      return weigh<5>(from, stride, weights, to, width);
    default:
      return weigh_many(from, stride, weights, count, to, width);
  }
}

void resize_columns(const uint8_t* from, uint8_t* to, int64_t out, int64_t width, const Weighting& by) {
  for (int64_t i = 0; i < out; ++i) {
    weigh_lines(from + by.first[i] * width, width, by.weights + i * by.most, by.count[i], to + i * width, width);
  }
}

inline Bytes load(const uint8_t* from) {
  Bytes bytes;
  __builtin_memcpy(&bytes, from, sizeof(bytes));
  return bytes;
}

inline void store(uint8_t* to, Bytes bytes) {
  __builtin_memcpy(to, &bytes, sizeof(bytes));
}

inline Bytes low_halves(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

inline Bytes high_halves(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

inline void shuffle(const Bytes* from, Bytes* to) {
  for (int i = 0; i < kSide / 2; ++i) {
    to[2 * i] = low_halves(from[i], from[i + kSide / 2]);
    to[2 * i + 1] = high_halves(from[i], from[i + kSide / 2]);
  }
}

// A block of kSide x kSide: its rows become columns, in four perfect shuffles.
void transpose_block(const uint8_t* from, int64_t from_stride, uint8_t* to, int64_t to_stride) {
  Bytes a[kSide];
  Bytes b[kSide];
  for (int i = 0; i < kSide; ++i) a[i] = load(from + i * from_stride);
  shuffle(a, b);
  shuffle(b, a);
  shuffle(a, b);
  shuffle(b, a);
  for (int i = 0; i < kSide; ++i) store(to + i * to_stride, a[i]);
}

// [rows, columns] to [columns, rows], of lines that are so far apart. The last blocks overlap those before them.
void transpose(const uint8_t* from, int64_t from_stride, uint8_t* to, int64_t to_stride, int64_t rows,
               int64_t columns) {
  if (rows < kSide || columns < kSide) {
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < columns; ++x) to[x * to_stride + y] = from[y * from_stride + x];
    }
    return;
  }
  for (int64_t row = 0; row < rows; row += kSide) {
    const int64_t y = at_most(row, rows - kSide);
    for (int64_t column = 0; column < columns; column += kSide) {
      const int64_t x = at_most(column, columns - kSide);
      transpose_block(from + y * from_stride + x, from_stride, to + x * to_stride + y, to_stride);
    }
  }
}

// Some rows at a time become columns, whose bytes have the same weights.
void resize_rows(const uint8_t* from, uint8_t* to, int64_t rows, int64_t in, int64_t out, int64_t channels,
                 const Weighting& by, uint8_t* scratch) {
  const int64_t old_width = in * channels;
  const int64_t width = out * channels;
  uint8_t* const columns = scratch;
  uint8_t* const results = scratch + old_width * kPixelRows;
  for (int64_t row = 0; row < rows; row += kPixelRows) {
    const int64_t some = at_most(kPixelRows, rows - row);
    transpose(from + row * old_width, old_width, columns, some, some, old_width);
    resize_columns(columns, results, out, channels * some, by);
    transpose(results, some, to + row * width, width, width, some);
  }
}

void to_planes(const uint8_t* __restrict from, float* __restrict to, int64_t pixels, const float* factors,
               const float* offsets) {
  float* __restrict const second = to + pixels;
  float* __restrict const third = second + pixels;
  for (int64_t i = 0; i < pixels; ++i) {
    to[i] = static_cast<float>(from[3 * i]) * factors[0] - offsets[0];
    second[i] = static_cast<float>(from[3 * i + 1]) * factors[1] - offsets[1];
    third[i] = static_cast<float>(from[3 * i + 2]) * factors[2] - offsets[2];
  }
}

}  // namespace

extern const PixelTable kPixelTable = {resize_rows, resize_columns, to_planes};

}  // namespace cohort::kernels::COHORT_ISA
