#include "base/plain_tensor.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace cohort {

bool is_plain(const torch::Tensor& tensor) {
  static const c10::DispatchKeySet plain = at::empty({0}).key_set();
  return tensor.key_set() == plain && tensor.is_contiguous() && !torch::autograd::isFwGradDefined(tensor);
}

}  // namespace cohort
