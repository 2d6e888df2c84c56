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

// Writes the operation into the program's text.
using LowerFunction = void (*)(stablehlo::Lowering& op);

struct OperationInfo {
  // The name of the functional form, without "aten::": "add.Tensor". Its forms that write in place ("add_.Tensor") and
  // into `out` are recorded as this one, too, where LibTorch has them.
  const char* name;
  LowerFunction lower;
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

}  // namespace cohort::record
