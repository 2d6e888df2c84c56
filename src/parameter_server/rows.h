// Rows of tables, on the CPU.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace cohort {

// Asks for memory that is needed soon: rows of a large table lie anywhere in it.
inline void prefetch(const void* begin, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t at = 0; at < bytes; at += kLine) __builtin_prefetch(static_cast<const std::byte*>(begin) + at);
}
// So many rows before it is their turn.
inline constexpr int64_t kRowsAhead = 8;

struct UniqueRows {
  torch::Tensor unique;   // int64, ascending
  torch::Tensor inverse;  // int64: where each of the indices is among them
};
// Of int64 indices [count], contiguous.
UniqueRows unique_rows(const torch::Tensor& indices);

// table[indices] along dimension 0, both contiguous; the indices are in range.
torch::Tensor gather_rows(const torch::Tensor& table, const torch::Tensor& indices);

// The same, with a gradient: rows that are there several times get the sum, in the order of the indices.
torch::Tensor look_up_rows(const torch::Tensor& table, const torch::Tensor& indices);

}  // namespace cohort
