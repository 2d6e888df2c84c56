#include "strategy/divided.h"

#include "base/extension.h"

namespace cohort {

const DividedTensor* DividedTensor::of(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kDividedKey)) return nullptr;
  return dynamic_cast<const DividedTensor*>(tensor.getIntrusivePtr().get());
}

namespace {

const DividedMaker& maker() {
  return extension_of<DividedMaker>("mesh", "[mesh] a tensor is to be divided among replicas");
}

}  // namespace

torch::Tensor divided_along(const torch::Tensor& whole, const std::vector<int64_t>& parts, Communicator& line) {
  return maker().divide(whole, parts, line);
}

torch::Tensor joined_along(const torch::Tensor& part, int64_t dim, Communicator& line) {
  return maker().join(part, dim, line);
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
