// Pooling to an output of a given size, whatever the size of the input (Keras' and LibTorch's adaptive pooling).
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"
#include "cohort/train/layers/more_convolutions.h"

namespace cohort {

// Window i of n over an axis of a size has the elements from floor(i * size / n) to ceil((i + 1) * size / n). So
// windows may overlap, and the output may be larger than the input. InvalidArgument: output_size is not positive, or
// the input has other dimensions.

struct AdaptivePooling1DOptions {
  int64_t output_size = 0;  // length of the output; needed
  std::string name = {};    // empty: the model gives one
};
// The largest element of each window: [batch, channels, length] -> [batch, channels, output_size].
Layer AdaptiveMaxPooling1D(const AdaptivePooling1DOptions& options);
// The mean of each window.
Layer AdaptiveAveragePooling1D(const AdaptivePooling1DOptions& options);

struct AdaptivePooling2DOptions {
  Size2 output_size = 0;  // height and width of the output; needed
  std::string name = {};  // empty: the model gives one
};
// The largest element of each window: [batch, channels, height, width] -> [batch, channels, height', width'].
Layer AdaptiveMaxPooling2D(const AdaptivePooling2DOptions& options);
// The mean of each window.
Layer AdaptiveAveragePooling2D(const AdaptivePooling2DOptions& options);

struct AdaptivePooling3DOptions {
  Size3 output_size = 0;  // depth, height and width of the output; needed
  std::string name = {};  // empty: the model gives one
};
// The largest element of each window: [batch, channels, depth, height, width] -> [batch, channels, depth', height',
// width'].
Layer AdaptiveMaxPooling3D(const AdaptivePooling3DOptions& options);
// The mean of each window.
Layer AdaptiveAveragePooling3D(const AdaptivePooling3DOptions& options);

}  // namespace cohort
