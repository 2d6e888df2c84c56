// Tells which tensors are the same: as objects, or by the memory that they stand for. No other code takes a tensor's
// pointer to tell it from others, because a device whose work is recorded has none to give.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <optional>

namespace cohort {

// Returns a number of the tensor as an object: its handles have the same, its views have others. It serves for sets and
// maps of tensors that live.
const void* tensor_id(const torch::Tensor& tensor);

// Returns a number of the memory in which the tensor's elements begin, for as long as that memory is in use. Views that
// begin with the same element have the same.
const void* memory_id(const torch::Tensor& tensor);
// Returns whether two tensors begin in the same memory.
bool same_memory(const torch::Tensor& a, const torch::Tensor& b);

// The bytes between a tensor's first and its last element.
struct MemoryRange {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
};
// Returns where the tensor's elements lie; nothing for one without elements or without memory of its own, such as a
// sparse one. Ranges of different devices have nothing to do with each other.
std::optional<MemoryRange> memory_range(const torch::Tensor& tensor);
// Returns the number of elements between the first and the last one, both included, gaps and all.
int64_t elements_spanned(const torch::Tensor& tensor);

}  // namespace cohort
