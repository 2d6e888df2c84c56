#include "ops/plain_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace cohort {

bool is_plain(const torch::Tensor& tensor) {
  return is_plain_strided(tensor) && tensor.is_contiguous();
}

bool is_plain_strided(const torch::Tensor& tensor) {
  static const c10::DispatchKeySet plain = at::empty({0}).key_set();
  return tensor.key_set() == plain && !torch::autograd::isFwGradDefined(tensor);
}

bool is_own(const torch::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1;
}

torch::Tensor empty_plain(c10::IntArrayRef sizes, c10::ScalarType dtype) {
  return torch::Tensor(at::detail::empty_cpu(sizes, dtype));
}

}  // namespace cohort
