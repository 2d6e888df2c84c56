// The lowering of a program to StableHLO's text.
#pragma once

#include <string>

#include "record/program.h"

namespace cohort::record {

struct StableHloOptions {
  // How many replicas run the program together; all_reduce sums over them.
  int num_replicas = 1;
  // The name of the module.
  std::string name = "step";
};

// Returns the program as the text of a StableHLO module with one function "main": an operation a line, each with a
// location that names the LibTorch operation and the module it belongs to, such as loc("aten::mm layer3.fc1").
// Arguments and results are the program's inputs and outputs in their order; an input whose memory an output may take
// has tf.aliasing_output. Products are of precision HIGHEST. Unimplemented: an operation, or what it was asked for, has
// no lowering; the message names both and the module.
std::string to_stablehlo(const Program& program, const StableHloOptions& options = {});

}  // namespace cohort::record
