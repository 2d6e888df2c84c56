// ModuleForm: what has modules of the library, which know of no parts, compute with parts of their parameters.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <string>

#include "cohort/parallel/axes.h"

namespace cohort {

// The parameters of a module that are cut, by their names in it.
using ModuleCuts = std::map<std::string, ParameterAxes>;

struct ModuleForm {
  // Returns whether a module is of the type.
  bool (*fits)(const torch::nn::Module& module) = nullptr;
  // Does DividedModule::divide() for one.
  void (*divide)(torch::nn::Module& module, const ModuleCuts& cuts, const Topology& topology) = nullptr;
};

// Acts on a module when all in it have been divided.
struct AfterDivision {
  void (*act)(torch::nn::Module& module) = nullptr;
};

}  // namespace cohort
