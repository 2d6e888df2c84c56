// Counts hits by pointers, in one pass: an operation of LibTorch costs more than a step's few rows.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace cohort {

template <typename T>
int64_t count_hits_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  const T* row = scores.data_ptr<T>();
  const int64_t* label = labels.data_ptr<int64_t>();
  const int64_t rows = scores.size(0), classes = scores.size(1);
  int64_t hits = 0;
  for (int64_t i = 0; i < rows; ++i, row += classes) {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c) best = row[c] > row[best] ? c : best;
    hits += best == label[i] ? 1 : 0;
  }
  return hits;
}

// Returns the number of rows whose largest score (the first of equal ones) is at the label, or nothing where LibTorch's
// operations have to count. scores: [rows, classes], labels: int64, [rows].
inline std::optional<int64_t> count_hits(const torch::Tensor& scores, const torch::Tensor& labels) {
  const bool fits = scores.is_cpu() && scores.has_storage() && scores.dim() == 2 && scores.size(1) > 0 &&
                    scores.is_contiguous() && labels.is_contiguous();
  if (fits && scores.scalar_type() == torch::kFloat) return count_hits_of<float>(scores, labels);
  if (fits && scores.scalar_type() == torch::kDouble) return count_hits_of<double>(scores, labels);
  return std::nullopt;
}

}  // namespace cohort
