// Takes the pointer of a storage, whose context says which unit it is.
#include "strategy/shared_parameters.h"

#include <c10/core/StorageImpl.h>

namespace cohort {

SharedParameters* SharedParameters::of(const torch::Tensor& tensor) {
  const Place* place = Place::of(tensor);
  return place == nullptr ? nullptr : place->shared.get();
}

const void* SharedParameters::home(const torch::Tensor& parameter) {
  return parameter.storage().data_ptr().get_context();
}

torch::Tensor SharedParameters::whole(const torch::Tensor& parameter, Wholes& wholes) {
  const torch::NoGradGuard no_grad;
  const Place* place = Place::of(parameter);
  if (place == nullptr) return parameter.detach();
  std::vector<torch::Tensor>& units = wholes[{place->shared.get(), place->unit}];
  if (units.empty()) units = place->shared->whole_unit(place->unit);
  const torch::Tensor& unit = units[static_cast<std::size_t>(place->local_id)];
  return unit.as_strided(parameter.sizes(), parameter.strides(), parameter.storage_offset());
}

void SharedParameters::Place::release(void* place) {
  const std::unique_ptr<Place> own(static_cast<Place*>(place));
  own->shared->forget(own->unit, own->local_id);
}

const SharedParameters::Place* SharedParameters::Place::of(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const c10::DataPtr& pointer = tensor.storage().data_ptr();
  return pointer.get_deleter() == &release ? static_cast<const Place*>(pointer.get_context()) : nullptr;
}

}  // namespace cohort
