// The arguments of a function's call.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "cohort/function.h"
#include "wings/function/signature.h"

namespace cohort {

// Where a call takes place and what its arguments are.
struct FunctionArguments {
  Signature given;                                   // what came
  Signature signature;                               // the same, or what the input_signature has in its place
  std::vector<torch::Tensor> tensors;                // the defined ones; those that are described only are undefined
  std::vector<std::shared_ptr<const void>> objects;  // that the signature is of
  torch::Device device = torch::kCPU;                // where the function runs
  bool records = false;                              // whether that device records
  bool captures = false;                             // whether work of that device can be captured
  bool of_replicas = false;                          // whether there are per-replica values, so that it runs as it is
};

// Returns what a call's arguments are. InvalidArgument: they are on several devices that record. `name` is the
// function's.
FunctionArguments arguments_of(detail::FunctionCall& call, const std::string& name);
// Names argument i of the signature for messages: "argument 1.inputs[0]".
std::string place_of(detail::FunctionCall& call, std::size_t i);

}  // namespace cohort
