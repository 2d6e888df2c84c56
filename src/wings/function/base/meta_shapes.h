// The results of operations as tensors of the device Meta, where some version of LibTorch has no kernel for it.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <string_view>
#include <vector>

namespace cohort {

// Returns the results of an operation, from the arguments with Meta tensors for tensors.
using MetaShape = std::vector<torch::Tensor> (*)(const std::vector<c10::IValue>& arguments);

// Returns that of an operation's functional form, named without "aten::": "add.Tensor". Null: LibTorch's own kernel.
MetaShape find_meta_shape(std::string_view operation);

}  // namespace cohort
