#include "device/host_memory.h"

#include <ATen/Functions.h>

#include <algorithm>

namespace cohort {

std::span<std::byte> host_bytes(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

std::string_view host_text(const torch::Tensor& tensor) {
  const std::span<const std::byte> bytes = host_bytes(tensor);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void release_memory(const torch::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  storage.set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  storage.set_nbytes(0);
}

torch::Tensor tensor_of_text(std::string_view text) {
  torch::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, torch::kByte);
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(host_bytes(bytes).data()));
  return bytes;
}

}  // namespace cohort
