// Examples with the columns of Criteo's data sets.
#pragma once

#include <torch/types.h>

#include "cohort/data/datasets.h"

namespace cohort::datasets {

inline constexpr int64_t kDenseFeatures = 13;
inline constexpr int64_t kCategories = 26;
inline constexpr int64_t kNoCategory = -1;  // a field that is empty

struct Clicks {
  torch::Tensor dense;       // float [examples, 13]
  torch::Tensor categories;  // int64 [examples, 26]
  torch::Tensor labels;      // float [examples]
  torch::Tensor chances;     // float [examples]: of a label of 1, where they are known

  Clicks first(int64_t count) const {
    return {.dense = dense.narrow(0, 0, count),
            .categories = categories.narrow(0, 0, count),
            .labels = labels.narrow(0, 0, count),
            .chances = {}};
  }
  Clicks rows(const torch::Tensor& numbers) const {
    return {.dense = dense.index_select(0, numbers),
            .categories = categories.index_select(0, numbers),
            .labels = labels.index_select(0, numbers),
            .chances = {}};
  }
};

// Draws examples by the rule of drawn_clicks(); `part` chooses among independent ones.
Clicks draw_clicks(int64_t count, uint64_t seed, uint64_t part);

// Returns them as a data set.
Dataset examples_of(const Clicks& clicks);

}  // namespace cohort::datasets
