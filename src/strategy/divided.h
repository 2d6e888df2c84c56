// Divided tensors: tensors of which each replica of a line has a part, such as images and sequences. They have the
// sizes of the whole. LibTorch's dispatcher hands operations with them to those who make them, so modules need not
// know; what others may ask of them is here.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/TensorImpl.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cohort/communicator.h"

namespace cohort {

// The dispatch key of divided tensors, above autograd's and autocast's. LibTorch has it for those who test wrappers of
// tensors, and has no kernels for it.
inline constexpr c10::DispatchKey kDividedKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// softmax(query key^T scale) value. All tensors are [examples, heads, steps, size]; the query is divided along its
// steps, key and value may be. Their steps may be others than those of the query. A query that sees no key gets zeros.
struct AttentionArgs {
  torch::Tensor query, key, value;
  std::string who;  // the layer, for messages
  double scale = 1.0;
  bool causal = false;  // a query sees the keys of its position and before
  // Masks that say what is seen, of bool: [examples or 1, heads or 1, queries or 1, keys or 1], divided or whole.
  std::vector<torch::Tensor> masks = {};
  double dropout = 0.0;  // the part of the weights that is dropped
};

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
  // Returns all parts as a plain tensor, for operations of which each replica of the line does a part: each gets the
  // sum of its part of all replicas' gradients.
  virtual torch::Tensor entered(const torch::Tensor& self) const = 0;
  // Returns the sum of the line's plain tensors, divided as this one is; each replica gets the whole gradient.
  virtual torch::Tensor sum(const torch::Tensor& term) const = 0;
  // Returns the result of attention, divided as the query is, which is this one. To be called in run(), by all replicas
  // of the line.
  virtual torch::Tensor attend(const AttentionArgs& args) const = 0;

 protected:
  using c10::TensorImpl::TensorImpl;
};

// Makes divided tensors: a wing adds it.
struct DividedMaker {
  torch::Tensor (*divide)(const torch::Tensor& whole, const std::vector<int64_t>& parts, Communicator& line) = nullptr;
  torch::Tensor (*join)(const torch::Tensor& part, int64_t dim, Communicator& line) = nullptr;
};
// Returns this replica's part of a tensor that the whole line has, as a divided tensor. `parts` has a number for each
// dimension; their product is the size of the line. Its gradient is that of all parts.
torch::Tensor divided_along(const torch::Tensor& whole, const std::vector<int64_t>& parts, Communicator& line);
// Returns the divided tensor of which each replica of the line has this part of a dimension; all have the same size.
torch::Tensor joined_along(const torch::Tensor& part, int64_t dim, Communicator& line);

inline bool is_divided(const torch::Tensor& tensor) {
  return DividedTensor::of(tensor) != nullptr;
}

// Returns all parts of a divided tensor as a plain one; others as they are.
torch::Tensor whole_of(const torch::Tensor& tensor);

// Returns what fn makes of a tensor; of a divided one what it makes of the part, whose sizes it keeps.
torch::Tensor on_part(const torch::Tensor& tensor, const std::function<torch::Tensor(const torch::Tensor&)>& fn);

}  // namespace cohort
