#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

namespace cohort {

// Divides a tensor among the cores of its device, in so many parts in each dimension. The devices of a wing have cores.
struct CoreDivider {
  torch::Tensor (*divide)(const torch::Tensor& tensor, const std::vector<int64_t>& parts);
};

}  // namespace cohort
