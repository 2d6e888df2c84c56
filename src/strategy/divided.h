// Divided tensors: tensors of which each replica of a line has a part, such as images and sequences. They have the
// sizes of the whole. LibTorch's dispatcher hands operations with them to those who make them, so modules need not
// know; what others may ask of them is here.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/TensorImpl.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

// The dispatch key of divided tensors, above autograd's and autocast's. LibTorch has it for those who test wrappers of
// tensors, and has no kernels for it.
inline constexpr c10::DispatchKey kDividedKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// The implementation of a divided tensor. Methods take the tensor itself as `self`.
class DividedTensor : public c10::TensorImpl {
 public:
  // Returns that of a tensor; null: this replica has all of it.
  static const DividedTensor* of(const torch::Tensor& tensor);

  // Returns this replica's part, a plain tensor with the graph of autograd. OperationRefused: the tensor came out of a
  // torch::autograd::Function that took it for a whole one.
  virtual const torch::Tensor& part(const torch::Tensor& self) const = 0;
  // Returns all parts as a plain tensor; each gets its part of the gradient.
  virtual torch::Tensor whole(const torch::Tensor& self) const = 0;
  // Returns the function that makes a tensor, divided as this one is, of this replica's part.
  virtual std::function<torch::Tensor(const torch::Tensor& part)> maker() const = 0;
  // Returns the dimensions that are cut, ascending.
  virtual std::vector<int64_t> cut_dims() const = 0;
  // Returns this replica's end of the line.
  virtual Communicator& line() const = 0;
  // Returns a plain tensor that the whole line has, for use beside parts: its gradient is the sum of theirs.
  virtual torch::Tensor shared(const torch::Tensor& plain) const = 0;

 protected:
  using c10::TensorImpl::TensorImpl;
};

inline bool is_divided(const torch::Tensor& tensor) {
  return DividedTensor::of(tensor) != nullptr;
}

// Returns all parts of a divided tensor as a plain one; others as they are.
torch::Tensor whole_of(const torch::Tensor& tensor);

// Returns what fn makes of a tensor; of a divided one what it makes of the part, whose sizes it keeps.
torch::Tensor on_part(const torch::Tensor& tensor, const std::function<torch::Tensor(const torch::Tensor&)>& fn);

}  // namespace cohort
