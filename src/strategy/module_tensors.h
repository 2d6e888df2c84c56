// The parameters and buffers of a module, each tensor once. A tensor that is registered under several names (tied
// weights, a submodule that is used twice) stands under the first of them in the module's order.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <vector>

namespace cohort {

struct ModuleTensor {
  std::string name;
  torch::Tensor tensor;              // the module's own
  std::vector<std::string> aliases;  // the parameter's further names
};

// Returns the parameters, in the module's order.
std::vector<ModuleTensor> distinct_parameters(const torch::nn::Module& module);
// Returns the buffers, in the module's order.
std::vector<ModuleTensor> distinct_buffers(const torch::nn::Module& module);

// Checks that no parameter that requires a gradient shares memory with another parameter or with a buffer: an optimizer
// moves each of them to memory of its own, which would separate them silently. InvalidArgument names the two.
void require_apart(const torch::nn::Module& module);

}  // namespace cohort
