// Freezes modules of LibTorch.
#pragma once

#include <torch/nn/module.h>

namespace cohort {

// Puts LibTorch's batch norms in a module (itself included), and those of scripts, into evaluation mode: they use their
// statistics and learn none.
void hold_statistics(torch::nn::Module& module);

}  // namespace cohort
