// The memory of tensors that lie on the host, as bytes, of which files, messages and texts are made.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <span>
#include <string_view>

namespace cohort {

// Returns the elements of a contiguous tensor on the host as they lie in memory, which the tensor keeps.
std::span<std::byte> host_bytes(const torch::Tensor& tensor);
// Returns the same as a text, which the tensor keeps, too.
std::string_view host_text(const torch::Tensor& tensor);

// Gives the memory of a tensor and of all its views back, while the tensor keeps its shape. Nothing may read it any
// more.
void release_memory(const torch::Tensor& tensor);

// Makes a tensor of the bytes of a text.
torch::Tensor tensor_of_text(std::string_view text);

}  // namespace cohort
