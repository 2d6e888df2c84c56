// The division of elements among ranks, replicas or workers that each sum or update a part of them.
#pragma once

#include <algorithm>
#include <cstdint>

namespace cohort {

// The alignment of parts, in elements. Parts begin on cache lines (64 bytes of float32), so that vector loads are
// aligned and no two ranks write to one line.
inline constexpr int64_t kSliceAlign = 16;

// Returns the number rounded up to a multiple of kSliceAlign.
constexpr int64_t aligned_slice(int64_t size) {
  return (size + kSliceAlign - 1) / kSliceAlign * kSliceAlign;
}

struct Slice {
  int64_t begin = 0;
  int64_t end = 0;

  constexpr int64_t size() const { return end - begin; }
};

// Returns the range within 0 to `size` that belongs to `part` of `parts`. All are about the same size; the last ones
// may be shorter or empty.
constexpr Slice slice_of(int64_t size, int part, int parts) {
  const int64_t step = aligned_slice((size + parts - 1) / parts);
  const int64_t begin = std::min(size, step * part);
  return {begin, std::min(size, begin + step)};
}

}  // namespace cohort
