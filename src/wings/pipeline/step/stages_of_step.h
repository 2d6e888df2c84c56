// The parameters of a step whose pipeline has its stages in several processes.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "strategy/replica_scope.h"

namespace cohort {

struct StagesOfStep {
  // A parameter that several processes of a line have. Its gradients are added up over the line, in which others take
  // part with zeros.
  struct Shared {
    std::optional<std::size_t> parameter;  // its number here
    torch::ScalarType dtype = torch::kFloat;
    std::vector<int64_t> sizes;
  };

  bool placed = true;  // it is known what the stages use, and each process has what it keeps
  std::vector<Shared> shared;
  // The numbers that the parameters had before they were placed, for sums of the step that did it.
  std::vector<std::size_t> kept;
};

}  // namespace cohort
