// The kind of a Discretization with what it learned.
#pragma once

#include <optional>
#include <vector>

#include "cohort/train/layers/preprocessing.h"

namespace cohort {

// What it was made with, as its LayerKind::options(), and the boundaries that num_bins bins were found to have.
struct DiscretizationParts {
  DiscretizationOptions options;
  std::optional<std::vector<double>> learned = std::nullopt;
};

AdaptedLayer discretization_of(const DiscretizationParts& parts);

}  // namespace cohort
