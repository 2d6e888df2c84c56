// The kind of a Normalization with what it learned.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>

#include "cohort/train/layers/preprocessing.h"

namespace cohort {

// Means and variances of the sizes of the axes. Undefined: 0 and 1, as long as a file has not brought others.
struct NormalizationStatistics {
  torch::Tensor mean = {};
  torch::Tensor variance = {};
};

// Makes the kind; nothing learned: it has to be adapted, or given its values, or to get them from a checkpoint.
std::shared_ptr<const LayerKind> normalization_kind(const NormalizationOptions& options,
                                                    std::optional<NormalizationStatistics> learned);

}  // namespace cohort
