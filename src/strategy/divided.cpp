#include "strategy/divided.h"

namespace cohort {

const DividedTensor* DividedTensor::of(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kDividedKey)) return nullptr;
  return dynamic_cast<const DividedTensor*>(tensor.getIntrusivePtr().get());
}

torch::Tensor whole_of(const torch::Tensor& tensor) {
  const DividedTensor* const divided = DividedTensor::of(tensor);
  return divided == nullptr ? tensor : divided->whole(tensor);
}

torch::Tensor on_part(const torch::Tensor& tensor, const std::function<torch::Tensor(const torch::Tensor&)>& fn) {
  const DividedTensor* const divided = DividedTensor::of(tensor);
  return divided == nullptr ? fn(tensor) : divided->maker()(fn(divided->part(tensor)));
}

}  // namespace cohort
