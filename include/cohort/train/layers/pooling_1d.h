// Pooling of sequences.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct Pooling1DOptions {
  int64_t pool_size = 2;                          // length of a window
  std::optional<int64_t> strides = std::nullopt;  // unset: pool_size
  Padding padding = Padding::kValid;              // the border around the sequence
  std::string name = {};                          // empty: the model gives one
};
// The largest element of each window: [batch, channels, length] -> [batch, channels, length'], as Conv1D has sequences.
// Padding takes no part in maxima and averages.
Layer MaxPooling1D(const Pooling1DOptions& options = {});
// The mean of each window.
Layer AveragePooling1D(const Pooling1DOptions& options = {});

struct GlobalPooling1DOptions {
  bool channels_first = false;  // [batch, channels, length], as Conv1D's, instead of [batch, steps, size], as LSTM's
  bool keepdims = false;        // the steps stay as a dimension of size 1
  std::string name = {};        // empty: the model gives one
};
// The mean of all steps of a sequence, [batch, steps, size] -> [batch, size]. Masked steps take no part.
Layer GlobalAveragePooling1D(const GlobalPooling1DOptions& options = {});
// The largest element of all steps that are not masked.
Layer GlobalMaxPooling1D(const GlobalPooling1DOptions& options = {});

}  // namespace cohort
