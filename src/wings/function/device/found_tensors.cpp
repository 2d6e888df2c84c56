#include "wings/function/device/found_tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <utility>

#include "device/host_memory.h"

namespace cohort {

namespace {

std::vector<std::byte> bytes_of(const torch::Tensor& tensor) {
  const torch::Tensor dense = tensor.detach().contiguous();
  const auto bytes = host_bytes(dense);
  return {bytes.begin(), bytes.end()};
}

}  // namespace

FoundTensors::Geometry::Geometry(const c10::TensorImpl& tensor)
    : storage(tensor.storage().unsafeGetStorageImpl()),
      dtype(c10::typeMetaToScalarType(tensor.dtype())),
      offset(tensor.storage_offset()),
      sizes(tensor.sizes().vec()),
      strides(tensor.strides().vec()) {}

bool FoundTensors::Geometry::is_of(const c10::TensorImpl& tensor) const {
  return tensor.has_storage() && tensor.storage().unsafeGetStorageImpl() == storage &&
         c10::typeMetaToScalarType(tensor.dtype()) == dtype && tensor.storage_offset() == offset &&
         tensor.sizes() == c10::IntArrayRef(sizes) && tensor.strides() == c10::IntArrayRef(strides);
}

void FoundTensors::need(const c10::Storage& memory) {
  memory_.push_back({.storage = memory.getWeakStorageImpl(), .begin = memory.data()});
}

void FoundTensors::keep(const torch::Tensor& tensor) {
  kept_.push_back({.tensor = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()),
                   .geometry = Geometry(*tensor.unsafeGetTensorImpl())});
}

void FoundTensors::need_values(const torch::Tensor& tensor) {
  values_.push_back({.storage = tensor.storage().getWeakStorageImpl(),
                     .geometry = Geometry(*tensor.unsafeGetTensorImpl()),
                     .bytes = bytes_of(tensor)});
}

bool FoundTensors::has_its_values(const Values& values) {
  auto storage = values.storage.lock();
  if (!storage) return false;
  const Geometry& geometry = values.geometry;
  const std::size_t needed = at::detail::computeStorageNbytes(
      geometry.sizes, geometry.strides, c10::elementSize(geometry.dtype), static_cast<std::size_t>(geometry.offset));
  if (needed > storage->nbytes()) return false;
  const torch::NoGradGuard no_grad;
  const torch::Tensor now =
      at::empty({0}, torch::dtype(geometry.dtype))
          .set_(c10::Storage(std::move(storage)), geometry.offset, geometry.sizes, geometry.strides);
  return bytes_of(now) == values.bytes;
}

bool FoundTensors::are_as_they_were() const {
  const auto is_in_place = [](const Memory& memory) {
    const auto storage = memory.storage.lock();
    return storage && storage->data() == memory.begin;
  };
  const auto is_kept = [](const Kept& kept) {
    const auto tensor = kept.tensor.lock();
    return !tensor || kept.geometry.is_of(*tensor);
  };
  return std::all_of(memory_.begin(), memory_.end(), is_in_place) && std::all_of(kept_.begin(), kept_.end(), is_kept) &&
         std::all_of(values_.begin(), values_.end(), has_its_values);
}

}  // namespace cohort
