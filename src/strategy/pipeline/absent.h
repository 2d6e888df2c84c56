// Absent tensors: the parameters, and what a function given to run() computes, that another process of a pipeline has.
//
// A stage's process calls the same function as all others. In the chunks of other processes (MicrobatchCall::elsewhere)
// nothing is computed: LibTorch's dispatcher hands every operation to this file's kernel, by a key of its own, which
// makes tensors of the right sizes without memory. So the function comes to the process's own chunks, and to
// minimize(), with nothing changed. What needs the values of such a tensor is an error that names the operation.
#pragma once

#include <c10/core/DispatchKey.h>
#include <torch/types.h>

namespace cohort {

// The dispatch key of absent tensors, above autograd's and autocast's. LibTorch has it for programs outside of it that
// make modules without memory, and has no kernels for it.
inline constexpr c10::DispatchKey kAbsentKey = c10::DispatchKey::DeferredInit;

// Returns whether another process has the tensor's values.
bool is_absent(const torch::Tensor& tensor);

// Returns an absent tensor like another one; undefined stays undefined.
torch::Tensor absent_like(const torch::Tensor& tensor);

// Frees the memory of a module's parameter or buffer: it is absent from now on.
void make_absent(torch::Tensor& tensor);

// Returns zeros in the place of an absent tensor, for a collective to which this process has nothing to add, and others
// as they are.
torch::Tensor zeros_if_absent(const torch::Tensor& tensor);

// Has the operations of this thread handed to the kernel, or not.
void hand_over_operations(bool on);

// Gives LibTorch the kernel, once for the process.
void install_absent_kernel();

}  // namespace cohort
