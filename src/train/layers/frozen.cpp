#include "train/layers/frozen.h"

#include <torch/nn/modules/batchnorm.h>

#include "cohort/train/script_module.h"

namespace cohort {

void hold_statistics(torch::nn::Module& module) {
  module.apply([](torch::nn::Module& each) {
    const bool batch_norm = each.as<torch::nn::BatchNorm1dImpl>() != nullptr ||
                            each.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
                            each.as<torch::nn::BatchNorm3dImpl>() != nullptr;
    const bool of_python = each.as<ScriptModule>() != nullptr && each.name().find("BatchNorm") != std::string::npos;
    if (batch_norm || of_python) each.eval();
  });
}

}  // namespace cohort
