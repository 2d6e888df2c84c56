// The lowering of a program to StableHLO's text.
#pragma once

#include <string>
#include <string_view>

#include "wings/xla/record/program.h"

namespace cohort::record {

// How devices multiply numbers of float32, in products and convolutions; XLA's precision.
enum class MatmulPrecision {
  kDefault,  // the device's own: one pass in bfloat16 on TPUs, float32 on CPUs
  kHigh,     // three passes in bfloat16 on TPUs
  kHighest,  // float32, which is six passes in bfloat16 on TPUs
};

// Returns the precision of that name: default, high, highest. InvalidArgument names `source` and what there is.
MatmulPrecision find_matmul_precision(std::string_view name, std::string_view source);

struct StableHloOptions {
  // How many replicas run the program together; all_reduce sums over them.
  int num_replicas = 1;
  // The cores of a replica, among which XLA divides the program by the shardings in it (shard() in recorder.h).
  // Arguments and results are whole on every core.
  int num_cores = 1;
  // The name of the module.
  std::string name = "step";
  // The precision of all products.
  MatmulPrecision precision = MatmulPrecision::kDefault;
  // The platform that will run it, by PJRT's name: on "cpu" some products are written in the form that XLA is fast with
  // there. Empty: any.
  std::string platform = {};
  // The text of a function "public @main", which calls the program by the name "step". Empty: the program is "main".
  std::string main = {};
};

// Returns the program as the text of a StableHLO module with one function "main": an operation a line, each with a
// location that names the LibTorch operation and the module it belongs to, such as loc("aten::mm layer3.fc1").
// Arguments and results are the program's inputs and outputs in their order; an input whose memory an output may take
// has tf.aliasing_output. Unimplemented: an operation, or what it was asked for, has no lowering; the message names
// both and the module.
std::string to_stablehlo(const Program& program, const StableHloOptions& options = {});

}  // namespace cohort::record
