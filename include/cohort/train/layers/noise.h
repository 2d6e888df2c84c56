// Layers that change values at random while they train, and pass them on unchanged otherwise. They draw from the
// replica's own generator (Replica::generator()), outside replicas from LibTorch's default one.
#pragma once

#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct SpatialDropout1DOptions {
  double rate = 0.5;  // the share of channels that are set to zero, in [0, 1); the others grow by 1 / (1 - rate)
  bool channels_first = false;  // [batch, channels, length], as Conv1D's, instead of [batch, steps, size], as LSTM's
  std::string name = {};        // empty: the model gives one
};
// Drops a channel in all steps of a sequence at once. InvalidArgument: rate is not in [0, 1).
Layer SpatialDropout1D(const SpatialDropout1DOptions& options);
Layer SpatialDropout1D(double rate);

struct SpatialDropoutOptions {
  double rate = 0.5;      // the share of channels that are set to zero, in [0, 1); the others grow by 1 / (1 - rate)
  std::string name = {};  // empty: the model gives one
};
// Drops whole channels of images [batch, channels, height, width]. InvalidArgument: rate is not in [0, 1).
Layer SpatialDropout2D(const SpatialDropoutOptions& options);
Layer SpatialDropout2D(double rate);
// Drops whole channels of volumes [batch, channels, depth, height, width]. InvalidArgument: rate is not in [0, 1).
Layer SpatialDropout3D(const SpatialDropoutOptions& options);
Layer SpatialDropout3D(double rate);

struct GaussianNoiseOptions {
  double stddev = 0.0;    // the deviation of the noise, 0 or more
  std::string name = {};  // empty: the model gives one
};
// Adds normal numbers with mean 0. InvalidArgument: stddev is negative.
Layer GaussianNoise(const GaussianNoiseOptions& options);
Layer GaussianNoise(double stddev);

struct GaussianDropoutOptions {
  double rate = 0.5;      // in [0, 1); the deviation is sqrt(rate / (1 - rate)), that of Dropout's factors
  std::string name = {};  // empty: the model gives one
};
// Multiplies each element by a normal number with mean 1 (Srivastava et al., 2014). InvalidArgument: rate is not in
// [0, 1).
Layer GaussianDropout(const GaussianDropoutOptions& options);
Layer GaussianDropout(double rate);

struct AlphaDropoutOptions {
  double rate = 0.5;      // the share of elements that become selu's lowest value, in [0, 1)
  std::string name = {};  // empty: the model gives one
};
// Drops elements and keeps the mean and the variance of values that come from selu (Klambauer et al., 2017).
// InvalidArgument: rate is not in [0, 1).
Layer AlphaDropout(const AlphaDropoutOptions& options);
Layer AlphaDropout(double rate);

}  // namespace cohort
