// Communicators in autograd's nodes.
#pragma once

#include <torch/types.h>

#include "cohort/communicator.h"

namespace cohort {

// Autograd stores plain numbers with a node: the communicator travels as its address. It outlives every backward pass
// of its replica, because the strategy does.
inline int64_t to_number(Communicator& communicator) {
  return reinterpret_cast<int64_t>(&communicator);
}
inline Communicator& to_communicator(int64_t number) {
  return *reinterpret_cast<Communicator*>(number);  // NOLINT(performance-no-int-to-ptr)
}
inline Communicator& to_communicator(const c10::IValue& number) {
  return to_communicator(number.toInt());
}

inline torch::Tensor reduced_copy(Communicator& communicator, const torch::Tensor& value, ReduceOp op) {
  torch::Tensor copy = value.detach().clone(torch::MemoryFormat::Contiguous);
  communicator.all_reduce({&copy, 1}, op);
  return copy;
}

}  // namespace cohort
