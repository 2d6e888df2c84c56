// Normalization within each example: by layers, by root mean squares, by groups of channels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct LayerNormalizationOptions {
  int64_t dimensions = 1;  // the number of last dimensions that are normalised together
  double epsilon = 1e-3;   // added to the variance
  bool center = true;      // learns an offset (bias)
  bool scale = true;       // learns a factor (weight)
  std::string name = {};   // empty: the model gives one
  bool trainable = true;   // its parameters learn
};
// Takes the mean from the last dimensions and divides by their deviation; parameters weight and bias of their shape.
Layer LayerNormalization(const LayerNormalizationOptions& options = {});

struct RMSNormalizationOptions {
  int64_t dimensions = 1;  // the number of last dimensions that are normalised together
  double epsilon = 1e-6;   // added to the mean of the squares
  std::string name = {};   // empty: the model gives one
  bool trainable = true;   // its parameters learn
};
// Divides the last dimensions by the root of the mean of their squares; parameter weight of their shape (Zhang and
// Sennrich, 2019).
Layer RMSNormalization(const RMSNormalizationOptions& options = {});

struct GroupNormalizationOptions {
  int64_t groups = 32;    // divides the channels; -1: a group for each channel (instance normalisation)
  double epsilon = 1e-3;  // added to the variance
  bool center = true;     // learns an offset (bias)
  bool scale = true;      // learns a factor (weight)
  std::string name = {};  // empty: the model gives one
  bool trainable = true;  // its parameters learn
};
// Normalises groups of channels of each example over all places: [batch, channels, ...]; parameters weight and bias
// [channels] (Wu and He, 2018).
Layer GroupNormalization(const GroupNormalizationOptions& options = {});

struct UnitNormalizationOptions {
  std::vector<int64_t> axis = {-1};  // the dimensions whose elements are one vector; the batch is 0, the last one -1
  std::string name = {};             // empty: the model gives one
};
// Divides vectors by their length; a vector of zeros stays as it is. InvalidArgument: axis is empty, has the batch, the
// same dimension twice, or one that the input lacks.
Layer UnitNormalization(const UnitNormalizationOptions& options = {});

}  // namespace cohort
