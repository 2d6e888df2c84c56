// Rows of tables on the CPU: reading them, and making lists of row numbers unique.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace cohort {

// Fetches memory into the cache that is needed soon, because the rows of a large table are scattered.
inline void prefetch(const void* begin, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const std::byte*>(begin) + at);
}
// The number of rows by which memory is fetched ahead.
inline constexpr int64_t kRowsAhead = 8;

struct UniqueRows {
  torch::Tensor unique;   // int64, ascending
  torch::Tensor inverse;  // int64: the position of each index in `unique`
};
// Returns the unique rows of contiguous int64 indices of shape [count].
UniqueRows unique_rows(const torch::Tensor& indices);

// Returns table[indices] along dimension 0. Both are contiguous, and the indices are in range.
torch::Tensor gather_rows(const torch::Tensor& table, const torch::Tensor& indices);

// Returns the same with a gradient: a row that occurs several times gets the sum, in the order of the indices.
torch::Tensor look_up_rows(const torch::Tensor& table, const torch::Tensor& indices);

}  // namespace cohort
