// Pooling of images [batch, channels, height, width].
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

struct Pooling2DOptions {
  Size2 pool_size = 2;                          // height and width of a window
  std::optional<Size2> strides = std::nullopt;  // unset: pool_size
  Padding padding = Padding::kValid;            // the border around the image
  std::string name = {};                        // empty: the model gives one
};
// [batch, channels, height, width] -> [batch, channels, height', width']. Padding takes no part in maxima and averages.
Layer MaxPooling2D(const Pooling2DOptions& options = {});
// The mean of each window.
Layer AveragePooling2D(const Pooling2DOptions& options = {});

struct GlobalAveragePooling2DOptions {
  bool keepdims = false;  // [batch, channels, 1, 1] instead of [batch, channels]
  std::string name = {};  // empty: the model gives one
};
// The mean of each channel: [batch, channels, height, width] -> [batch, channels].
Layer GlobalAveragePooling2D(const GlobalAveragePooling2DOptions& options = {});

struct GlobalMaxPooling2DOptions {
  bool keepdims = false;  // [batch, channels, 1, 1] instead of [batch, channels]
  std::string name = {};  // empty: the model gives one
};
// The largest value of each channel: [batch, channels, height, width] -> [batch, channels].
Layer GlobalMaxPooling2D(const GlobalMaxPooling2DOptions& options = {});

}  // namespace cohort
