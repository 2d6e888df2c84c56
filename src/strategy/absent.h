// Absent tensors: parameters and values that another process has. They have a dtype and sizes, and no memory.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/types.h>

namespace cohort {

// The dispatch key of absent tensors, above autograd's and autocast's. LibTorch has it for programs outside of it that
// make modules without memory, and has no kernels for it.
inline constexpr c10::DispatchKey kAbsentKey = c10::DispatchKey::DeferredInit;

// Returns whether another process has the tensor's values.
bool is_absent(const torch::Tensor& tensor);

// Returns an absent tensor of the sizes, strides and dtype of another one.
torch::Tensor make_absent_tensor(const torch::Tensor& like, torch::Device device, bool requires_grad);

// Returns an absent tensor like another one; undefined stays undefined.
torch::Tensor absent_like(const torch::Tensor& tensor);

// Frees the memory of a module's parameter or buffer: it is absent from now on.
void make_absent(torch::Tensor& tensor);

// Returns zeros in the place of an absent tensor, for a collective to which this process has nothing to add, and others
// as they are.
torch::Tensor zeros_if_absent(const torch::Tensor& tensor);

}  // namespace cohort
