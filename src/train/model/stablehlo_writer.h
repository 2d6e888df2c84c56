// StableHloWriter: writes models as the text of StableHLO. An extension.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "cohort/example.h"

namespace cohort {

struct StableHloWriter {
  // The graph, which was traced with the batch `inputs`, takes `module`, whose tensors are the weights, and the inputs.
  // InvalidArgument names an operation that has no form, and the module that it belongs to.
  std::string (*write)(const std::string& name, const torch::jit::Graph& graph, const c10::IValue& module,
                       const NamedTensors& inputs, const NamedTensors& outputs);
};

}  // namespace cohort
