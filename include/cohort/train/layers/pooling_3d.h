// Pooling of volumes [batch, channels, depth, height, width].
#pragma once

#include <optional>
#include <string>

#include "cohort/train/layers/more_convolutions.h"

namespace cohort {

struct Pooling3DOptions {
  Size3 pool_size = 2;                          // depth, height and width of a window
  std::optional<Size3> strides = std::nullopt;  // unset: pool_size
  Padding padding = Padding::kValid;            // the border around the volume
  std::string name = {};                        // empty: the model gives one
};
// The largest element of each window: [batch, channels, depth, height, width] -> [batch, channels, depth', height',
// width']. Padding takes no part in maxima and averages. InvalidArgument: a size is not positive, or padding is
// kCausal.
Layer MaxPooling3D(const Pooling3DOptions& options = {});
// The mean of each window.
Layer AveragePooling3D(const Pooling3DOptions& options = {});

struct GlobalPooling3DOptions {
  bool keepdims = false;  // [batch, channels, 1, 1, 1] instead of [batch, channels]
  std::string name = {};  // empty: the model gives one
};
// The mean of each channel: [batch, channels, depth, height, width] -> [batch, channels].
Layer GlobalAveragePooling3D(const GlobalPooling3DOptions& options = {});
// The largest value of each channel. Equal ones share the gradient.
Layer GlobalMaxPooling3D(const GlobalPooling3DOptions& options = {});

}  // namespace cohort
