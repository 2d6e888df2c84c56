// The table of the operations that can be recorded: for each its LibTorch name, its lowering to StableHLO, and what the
// recorder has to know. One file of stablehlo/ has the rows of one family.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cohort::record {

namespace stablehlo {
class Lowering;
}

// Returns the results of an operation as tensors of the device Meta, from the arguments with Meta tensors for tensors.
using ShapeFunction = std::vector<torch::Tensor> (*)(const std::vector<c10::IValue>& arguments);
// Writes the operation into the program's text.
using LowerFunction = void (*)(stablehlo::Lowering& op);

struct OperationInfo {
  // The name of the functional form, without "aten::": "add.Tensor". Its forms that write in place ("add_.Tensor") and
  // into `out` are recorded as this one, too, where LibTorch has them.
  const char* name;
  LowerFunction lower;
  // Null: LibTorch's own kernel for Meta.
  ShapeFunction shape = nullptr;
  // Bit i: argument i is a number that may change from step to step and becomes an input of the program.
  uint32_t lifted = 0;
  // Whether the operands meet in a dtype of their own (comparisons) instead of the result's.
  bool promotes = false;
  // LibTorch's name of the form with `out`, if there is one that the recorder takes.
  const char* out_name = nullptr;
  // Whether a kernel of its own records the operation (kernels.cpp, random.cpp, statistics.cpp).
  bool recorded_elsewhere = false;
};

// Returns the row of a functional name without "aten::", or null.
const OperationInfo* find_operation(const std::string& name);
// Returns the rows of all families.
std::vector<std::span<const OperationInfo>> all_operations();

// The shape functions of operations for which LibTorch 1.13 has no kernel for Meta.
namespace shapes {
std::vector<torch::Tensor> like_first(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> like_first_twice(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> like_second(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> broadcast_first_two(const std::vector<c10::IValue>& arguments);
// All tensors broadcast: booleans, and where's.
std::vector<torch::Tensor> truth(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> where(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> mv(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> dot(const std::vector<c10::IValue>& arguments);
// Without dimensions, of the first argument's dtype or that of the third argument.
std::vector<torch::Tensor> scalar_like_first(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> scalar_of_dtype(const std::vector<c10::IValue>& arguments);
// Without the dimensions of argument 1; keepdim is argument 3 (after a correction) or 2.
std::vector<torch::Tensor> reduced_once(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> reduced_twice(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> reduced_no_correction(const std::vector<c10::IValue>& arguments);
// Those of the operations of these names.
std::vector<torch::Tensor> product(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> group_norm_backward(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> unfold_backward(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> convolution(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> convolution_backward(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> reflection_pad(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> replication_pad(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> adaptive_pool(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> batch_norm_backward(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> layer_norm(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> layer_norm_backward(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> nll_loss(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> elementwise_loss(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> weighted_loss(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> index_select(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> embedding(const std::vector<c10::IValue>& arguments);
std::vector<torch::Tensor> embedding_backward(const std::vector<c10::IValue>& arguments);
}  // namespace shapes

}  // namespace cohort::record
