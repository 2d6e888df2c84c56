#include "base/plain_tensor.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/functions/utils.h>

namespace cohort {

bool is_plain(const torch::Tensor& tensor) {
  static const c10::DispatchKeySet plain = at::empty({0}).key_set();
  return tensor.key_set() == plain && tensor.is_contiguous() && !torch::autograd::isFwGradDefined(tensor);
}

bool is_ordinary_thread() {
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  return keys.included_ == c10::default_included_set && keys.excluded_ == c10::default_excluded_set;
}

}  // namespace cohort
