// Layers that change the size of images [batch, channels, height, width], and of sequences: pooling, up-sampling,
// borders.
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

struct UpSampling2DOptions {
  // kNearest repeats rows and columns, kBilinear interpolates between them.
  enum class Interpolation { kNearest, kBilinear };

  Size2 size = 2;                                         // the number of rows and columns that each becomes
  Interpolation interpolation = Interpolation::kNearest;  // the way that is taken
  std::string name = {};                                  // empty: the model gives one
};
// [batch, channels, height, width] -> [batch, channels, height * size, width * size].
Layer UpSampling2D(const UpSampling2DOptions& options = {});

// Rows and columns at the four sides of an image; one number stands for all.
struct Border2 {
  // The same number at all sides.
  Border2(int64_t all) : top(all), bottom(all), left(all), right(all) {}  // NOLINT(google-explicit-constructor)
  // A number above and below, another one left and right.
  Border2(int64_t rows, int64_t columns) : top(rows), bottom(rows), left(columns), right(columns) {}
  // A number for each side.
  Border2(int64_t top, int64_t bottom, int64_t left, int64_t right)
      : top(top), bottom(bottom), left(left), right(right) {}
  bool operator==(const Border2&) const = default;

  int64_t top;     // rows above
  int64_t bottom;  // rows below
  int64_t left;    // columns left
  int64_t right;   // columns right
};
// Puts zeros around images.
Layer ZeroPadding2D(const Border2& padding = 1);
// Cuts rows and columns off.
Layer Cropping2D(const Border2& cropping);

}  // namespace cohort
