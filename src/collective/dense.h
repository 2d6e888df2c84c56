// What every back end asks of tensors.
#pragma once

#include <torch/types.h>

#include <string>
#include <string_view>

#include "base/fail.h"

namespace cohort {

// InvalidArgument, which names the operation: the tensor is undefined, or sparse.
inline void require_dense(std::string_view what, const torch::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() == torch::kStrided) return;
  fail<InvalidArgument>("[collective] ", what, ": needs dense tensors, got ",
                        tensor.defined() ? c10::str(tensor.layout()) : std::string("an undefined one"));
}

}  // namespace cohort
