#include "strategy/absent.h"

#include <ATen/Functions.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace cohort {

bool is_absent(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(kAbsentKey);
}

// No back end runs the operations of such a tensor, so its dispatch keys are those of the CPU on any device.
torch::Tensor make_absent_tensor(const torch::Tensor& like, torch::Device device, bool requires_grad) {
  const auto bytes = static_cast<int64_t>(
      at::detail::computeStorageNbytes(like.sizes(), like.strides(), static_cast<std::size_t>(like.element_size())));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             at::DataPtr(nullptr, device), /*allocator=*/nullptr,
                                                             /*resizable=*/false));
  auto made = c10::make_intrusive<c10::TensorImpl, c10::UndefinedTensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU).add(kAbsentKey), like.dtype());
  made->set_sizes_and_strides(like.sizes(), like.strides());
  torch::Tensor tensor(std::move(made));
  if (requires_grad && torch::autograd::isDifferentiableType(like.scalar_type())) tensor.set_requires_grad(true);
  return tensor;
}

torch::Tensor absent_like(const torch::Tensor& tensor) {
  return tensor.defined() ? make_absent_tensor(tensor, tensor.device(), tensor.requires_grad()) : tensor;
}

void make_absent(torch::Tensor& tensor) {
  if (is_absent(tensor)) return;
  tensor.set_data(make_absent_tensor(tensor.detach(), tensor.device(), /*requires_grad=*/false));
  tensor.mutable_grad() = torch::Tensor();
}

torch::Tensor zeros_if_absent(const torch::Tensor& tensor) {
  return is_absent(tensor) ? at::zeros(tensor.sizes(), tensor.options()) : tensor;
}

}  // namespace cohort
