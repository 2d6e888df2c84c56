// Call: one operation that LibTorch dispatched to the recorder, on its way into the graph.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "wings/xla/record/operations.h"
#include "wings/xla/record/recorder.h"

namespace cohort::record {

// Returns the operation's name with its overload, without "aten::" if it is LibTorch's.
std::string name_of(const c10::OperatorHandle& op);

class Call {
 public:
  // Takes the arguments from the stack.
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack);

  const std::vector<c10::IValue>& arguments() const { return arguments_; }
  Recording& recording() const { return *recording_; }

  // Returns the arguments with tensors of the device Meta in the place of tensors, of the same strides.
  torch::jit::Stack meta_arguments() const;
  // Returns the dtype in which the operands meet by LibTorch's rules of promotion.
  torch::ScalarType promoted(const torch::jit::Stack& meta) const;
  // Returns the arguments as the graph has them; those in `info.lifted` become numbers of the dtype.
  std::vector<Argument> graph_arguments(const OperationInfo& info, torch::ScalarType dtype) const;

 private:
  void note_device(const c10::IValue& argument);
  Argument tensor_argument(const torch::Tensor& tensor, torch::ScalarType dtype) const;

  std::string name_;
  std::vector<c10::IValue> arguments_;
  Recording* recording_ = nullptr;
};

// Returns a number as an argument of the graph: an attribute if its value simplifies the operation (0, 1, -1, 2), else
// a leaf.
Argument lifted(const at::Scalar& number, torch::ScalarType dtype);
// Returns whether lifted() makes a leaf of the number.
bool becomes_number(const at::Scalar& number);
// Returns the Meta tensor with the tensor's dtype, sizes and strides.
torch::Tensor meta_of(const torch::Tensor& tensor);

// The boxed kernels. The first records the operation as a node; the second makes a view; the third is for everything
// that is not in the table.
void record_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void record_view(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);
void refuse_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

}  // namespace cohort::record
