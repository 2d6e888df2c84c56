// Layers that change the size of images [batch, channels, height, width]: up-sampling and borders.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

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
