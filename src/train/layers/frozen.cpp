#include "train/layers/frozen.h"

#include <torch/nn/modules/batchnorm.h>

namespace cohort {

void hold_statistics(torch::nn::Module& module) {
  module.apply([](torch::nn::Module& each) {
    const bool batch_norm = each.as<torch::nn::BatchNorm1dImpl>() != nullptr ||
                            each.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
                            each.as<torch::nn::BatchNorm3dImpl>() != nullptr;
    if (batch_norm) each.eval();
  });
}

}  // namespace cohort
