// Batch normalisation whose statistics are those of the global batch, or of all parts of the images.
#pragma once

#include <torch/types.h>

#include <vector>

#include "cohort/communicator.h"

namespace cohort {

struct SyncBatchNormArgs {
  torch::Tensor weight;        // [channels]; undefined: ones
  torch::Tensor bias;          // [channels]; undefined: zeros
  torch::Tensor running_mean;  // both updated in place
  torch::Tensor running_var;
  double momentum = 0.01;  // share of the new statistics, as LibTorch's
  double epsilon = 1e-3;
  bool unbiased = true;  // the running variance moves to the unbiased one
};

// Collective: every rank calls it, also with no examples. Differentiable; the backward pass is a collective too. The
// statistics are those of all ranks of the groups, one after the other: a group's ranks are in one group of the next
// one each. A divided tensor (space/divided.h) adds the group of its parts.
torch::Tensor sync_batch_norm(const torch::Tensor& x, const SyncBatchNormArgs& args,
                              const std::vector<Communicator*>& groups);

}  // namespace cohort
