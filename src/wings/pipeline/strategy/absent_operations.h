// Replaces LibTorch's operations in the parts of a model that other processes of a pipeline compute.
//
// A stage's process calls the same function as all others. In the chunks of other processes (ReplicaScope::elsewhere)
// nothing is computed: LibTorch's dispatcher hands every operation to this file's kernel, by a key of its own, which
// makes absent tensors of the right sizes. So the function comes to the process's own chunks, and to minimize(), with
// nothing changed. What needs the values of such a tensor is an error that names the operation.
#pragma once

#include "ops/plain_operation.h"

namespace cohort {

// Has the operations of this thread handed to the kernel, or not. Plain operations tell `watch` their inputs.
// Without a watch LibTorch's operations replace them.
void hand_over_operations(bool on, const InputWatch* watch = nullptr);

// Gives LibTorch the kernel, once for the process.
void install_absent_kernel();

}  // namespace cohort
