// Numbers that drawn.py draws, too: weights and pictures for facts that other libraries gave.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <string>
#include <vector>

namespace cohort::testing {

// Draws a tensor by its name: weights of several dimensions by their number of inputs, in LibTorch's order.
inline torch::Tensor drawn(const std::string& name, const std::vector<int64_t>& shape) {
  int64_t seed = 0;
  for (const char byte : name) seed = (seed * 31 + byte) % 2147483647;
  constexpr int64_t kRange = int64_t{1} << 32;
  torch::Tensor bits = (torch::arange(c10::multiply_integers(shape), torch::kLong) * 2654435761 + seed) % kRange;
  bits = (bits.bitwise_xor(torch::div(bits, 1 << 15, "floor")) * 1103515245) % kRange;
  bits = bits.bitwise_xor(torch::div(bits, 1 << 13, "floor"));
  const torch::Tensor part = (bits.to(torch::kDouble) / static_cast<double>(kRange)).view(shape);
  const std::string last = name.substr(name.rfind('.') + 1);
  if (last == "num_batches_tracked") return torch::zeros(shape, torch::kLong);
  if (last == "running_var" || last == "variance") return 0.5 + part;
  if (last.ends_with("bias") || last == "running_mean" || last == "mean") return 0.2 * (part - 0.5);
  if (last.ends_with("weight") && shape.size() == 1) return 0.5 + 0.5 * part;
  const bool is_weight = last.ends_with("weight");
  const double bound = is_weight ? std::sqrt(6.0 * static_cast<double>(shape[0]) / part.numel()) : 1.0;
  return (2.0 * part - 1.0) * bound;
}

}  // namespace cohort::testing
