// Normalization over a batch.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

// The variance that the running variance of a batch norm moves to.
enum class MovingVariance {
  kKeras3,  // the batch's own (biased), at every rank
  kKeras2,  // the unbiased one for images [batch, channels, height, width], as the fused kernel's; else the batch's own
  kTorch,   // the unbiased one at every rank, as PyTorch's
};

// The way in which the running statistics of several replicas become one, where a batch norm is not synchronised.
enum class ReplicaStatistics {
  kFirst,  // the first replica's count, as Keras 3's; the others' are left out
  kMean,   // the mean over the replicas, as Keras 2's
};

struct BatchNormalizationOptions {
  int64_t axis = 1;        // dimension of the channels, the batch's is 0; Keras' is -1, the last
  double momentum = 0.99;  // running = running * momentum + batch * (1 - momentum)
  double epsilon = 1e-3;   // added to the variance
  bool center = true;      // learns an offset (bias)
  bool scale = true;       // learns a factor (weight)
  bool synchronized =
      false;  // statistics over the global batch, by two collectives a step, instead of the replica's share
  MovingVariance moving_variance = MovingVariance::kKeras3;          // the variance that running_var learns
  ReplicaStatistics replica_statistics = ReplicaStatistics::kFirst;  // the statistics that are evaluated with and saved
  std::string name = {};                                             // empty: the model gives one
  bool trainable = true;                                             // its parameters learn
};
// A normalization over all dimensions but that of the channels. Steps that a mask leaves out do not count. Buffers
// running_mean, running_var, num_batches_tracked; they stay per replica, and become one as replica_statistics says
// before they are read (on parameter servers the mean over all replicas). A replica without examples leaves them alone.
// A frozen layer uses them instead of the batch's, as Keras'. Source of the synchronised statistics: Chan, Golub and
// LeVeque, "Updating formulae and a pairwise algorithm" (1979): exact for uneven shares.
Layer BatchNormalization(const BatchNormalizationOptions& options = {});

}  // namespace cohort
