// Layers that change the size of sequences [batch, channels, length], images [batch, channels, height, width] and
// volumes [batch, channels, depth, height, width]: up-sampling and borders.
#pragma once

#include <cstdint>
#include <string>

#include "cohort/train/layers/layer.h"
#include "cohort/train/layers/more_convolutions.h"

namespace cohort {

struct UpSampling2DOptions {
  // kNearest repeats rows and columns, kBilinear interpolates between two of them, kBicubic between four.
  enum class Interpolation { kNearest, kBilinear, kBicubic };

  Size2 size = 2;                                         // the number of rows and columns that each becomes
  Interpolation interpolation = Interpolation::kNearest;  // the way that is taken
  std::string name = {};                                  // empty: the model gives one
};
// [batch, channels, height, width] -> [batch, channels, height * size, width * size].
Layer UpSampling2D(const UpSampling2DOptions& options = {});

// Repeats each element of a sequence `size` times: [batch, channels, length] -> [batch, channels, length * size].
// InvalidArgument: size is not positive.
Layer UpSampling1D(int64_t size = 2);
// Repeats slices, rows and columns of volumes. InvalidArgument: a size is not positive.
Layer UpSampling3D(const Size3& size = 2);

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

// Elements at the two ends of a sequence; one number stands for both.
struct Border1 {
  // The same number at both ends.
  Border1(int64_t both) : before(both), after(both) {}  // NOLINT(google-explicit-constructor)
  // A number for each end.
  Border1(int64_t before, int64_t after) : before(before), after(after) {}
  bool operator==(const Border1&) const = default;

  int64_t before;  // elements at the beginning
  int64_t after;   // elements at the end
};
// Puts zeros at the ends of sequences [batch, channels, length]. InvalidArgument: a number is negative.
Layer ZeroPadding1D(const Border1& padding = 1);
// Cuts the ends off. InvalidArgument: a number is negative, or nothing is left.
Layer Cropping1D(const Border1& cropping = 1);

// Slices, rows and columns at the six sides of a volume; one number stands for all.
struct Border3 {
  // The same number at all sides.
  Border3(int64_t all) : depth(all), height(all), width(all) {}  // NOLINT(google-explicit-constructor)
  // The numbers of each dimension.
  Border3(const Border1& depth, const Border1& height, const Border1& width)
      : depth(depth), height(height), width(width) {}
  bool operator==(const Border3&) const = default;

  Border1 depth;   // slices in front and behind
  Border1 height;  // rows above and below
  Border1 width;   // columns left and right
};
// Puts zeros around volumes [batch, channels, depth, height, width]. InvalidArgument: a number is negative.
Layer ZeroPadding3D(const Border3& padding = 1);
// Cuts slices, rows and columns off. InvalidArgument: a number is negative, or nothing is left.
Layer Cropping3D(const Border3& cropping = 1);

}  // namespace cohort
