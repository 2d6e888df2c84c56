// hashed(): a function of single integers on a tensor of them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

namespace cohort {

// Returns bin() of each integer, in their order, on their device; computed on the CPU.
torch::Tensor hashed(const torch::Tensor& integers, const std::function<int64_t(int64_t)>& bin);

}  // namespace cohort
