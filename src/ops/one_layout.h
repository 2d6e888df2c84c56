// Layouts of a tensor and its gradient. Some kernels of LibTorch are wrong where the two differ (docs/installing.md).
#pragma once

#include <c10/core/MemoryFormat.h>
#include <torch/types.h>

namespace cohort {

// Returns whether the strides of images or volumes can be read as two layouts: there is one example, or one row, ...
inline bool has_ambiguous_layout(const torch::Tensor& x) {
  if (x.dim() < 4) return false;
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (dim != 1 && x.size(dim) == 1) return true;
  }
  return false;
}

// Has the gradient of y arrive in the layout `format`.
inline void lay_out_gradient(const torch::Tensor& y, at::MemoryFormat format) {
  if (!y.requires_grad()) return;
  y.register_hook([format](const torch::Tensor& gradient) { return gradient.contiguous(format); });
}

// Returns norm(x), where the kernels of a batch norm see x and the gradient of the result in one layout.
template <typename Norm>
torch::Tensor normalize_in_one_layout(const torch::Tensor& x, const Norm& norm) {
  if (!x.device().is_cpu() || !has_ambiguous_layout(x)) return norm(x);
  const at::MemoryFormat format = x.suggest_memory_format();
  torch::Tensor y = norm(x.contiguous(format));
  lay_out_gradient(y, format);
  return y;
}

}  // namespace cohort
