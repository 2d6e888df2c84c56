#include "device/identity.h"

namespace cohort {

const void* tensor_id(const torch::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl();
}

// A tensor without storage is nobody's view: it is its own memory. A recorded one has no memory, but what stands for it
// (src/wings/xla/record/cell.h).
const void* memory_id(const torch::Tensor& tensor) {
  if (tensor.device().type() == torch::kXLA && tensor.has_storage()) return tensor.storage().data_ptr().get_context();
  return tensor.has_storage() ? tensor.data_ptr() : tensor_id(tensor);
}

bool same_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return memory_id(a) == memory_id(b);
}

int64_t elements_spanned(const torch::Tensor& tensor) {
  int64_t span = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
  return span;
}

std::optional<MemoryRange> memory_range(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided || tensor.numel() == 0) return std::nullopt;
  if (!tensor.has_storage() || tensor.storage().nbytes() == 0 || tensor.is_meta() ||
      tensor.device().type() == torch::kXLA)
    return std::nullopt;
  const auto* begin = static_cast<const std::byte*>(tensor.data_ptr());
  return MemoryRange{begin, begin + elements_spanned(tensor) * static_cast<int64_t>(tensor.element_size())};
}

}  // namespace cohort
