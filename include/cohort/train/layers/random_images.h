// Layers that change images [batch, channels, height, width] at random while they train, each image by itself, and pass
// them on unchanged otherwise. They draw from the replica's own generator (Replica::generator()), outside replicas from
// LibTorch's default one. Images are floating point.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cohort/train/layers/layer.h"

namespace cohort {

// An interval of random numbers; one number stands for the same distance on both sides of 0.
struct RandomRange {
  // From -distance to distance.
  RandomRange(double distance) : low(-distance), high(distance) {}  // NOLINT(google-explicit-constructor)
  // From low to high.
  RandomRange(double low, double high) : low(low), high(high) {}
  bool operator==(const RandomRange&) const = default;

  double low;   // the smallest number
  double high;  // the largest number; as large as low: there is no chance
};

// The pixels beyond the border: one value, the nearest pixel, the mirrored image, or the image again.
enum class FillMode { kConstant, kNearest, kReflect, kWrap };
// The pixel between others: the nearest one, or the mean of four by their distance.
enum class WarpInterpolation { kNearest, kBilinear };

struct RandomRotationOptions {
  RandomRange factor = 0.0;                                        // turns, counter-clockwise, from -1 to 1
  FillMode fill_mode = FillMode::kReflect;                         // the pixels beyond the border
  WarpInterpolation interpolation = WarpInterpolation::kBilinear;  // the pixels between others
  double fill_value = 0.0;                                         // the pixels that kConstant adds
  std::string name = {};                                           // empty: the model gives one
};
// Rotates each image around its middle. InvalidArgument: factor is not an interval within [-1, 1].
Layer RandomRotation(const RandomRotationOptions& options);

struct RandomTranslationOptions {
  RandomRange height_factor = 0.0;                                 // parts of the height, downwards, from -1 to 1
  RandomRange width_factor = 0.0;                                  // parts of the width, to the right, from -1 to 1
  FillMode fill_mode = FillMode::kReflect;                         // the pixels beyond the border
  WarpInterpolation interpolation = WarpInterpolation::kBilinear;  // the pixels between others
  double fill_value = 0.0;                                         // the pixels that kConstant adds
  std::string name = {};                                           // empty: the model gives one
};
// Shifts each image. InvalidArgument: a factor is not an interval within [-1, 1].
Layer RandomTranslation(const RandomTranslationOptions& options);

struct RandomZoomOptions {
  RandomRange height_factor = 0.0;  // what is seen of the height, more or less than all: 0.2 shows 20 % more
  std::optional<RandomRange> width_factor = std::nullopt;          // unset: the height's, so that shapes stay
  FillMode fill_mode = FillMode::kReflect;                         // the pixels beyond the border
  WarpInterpolation interpolation = WarpInterpolation::kBilinear;  // the pixels between others
  double fill_value = 0.0;                                         // the pixels that kConstant adds
  std::string name = {};                                           // empty: the model gives one
};
// Zooms each image out (positive factors) or in. InvalidArgument: a factor is not an interval within (-1, 1].
Layer RandomZoom(const RandomZoomOptions& options);

struct RandomFlipOptions {
  bool horizontal = true;  // left and right change places in half of the images
  bool vertical = true;    // top and bottom do, independently
  std::string name = {};   // empty: the model gives one
};
// Mirrors images. InvalidArgument: neither direction is chosen.
Layer RandomFlip(const RandomFlipOptions& options = {});

// Cuts the same random part out of all images of a batch. Otherwise, and where an image is smaller than the part, it
// takes the largest part of that shape in the middle, and resizes it. InvalidArgument: a size is not positive.
Layer RandomCrop(int64_t height, int64_t width, std::string name = {});

struct RandomContrastOptions {
  double lower = 0.0;                      // the contrast becomes 1 - lower times as large at least, in [0, 1]
  double upper = 0.0;                      // and 1 + upper times at most; 0 or more
  RandomRange value_range = {0.0, 255.0};  // the values that pixels may have; others become the nearest of these
  std::string name = {};                   // empty: the model gives one
};
// Multiplies the distance of each pixel from the mean of its channel. InvalidArgument: a number is out of its range.
Layer RandomContrast(const RandomContrastOptions& options);

struct RandomBrightnessOptions {
  RandomRange factor = 0.0;                // parts of the range of values that are added, from -1 to 1
  RandomRange value_range = {0.0, 255.0};  // the values that pixels may have; others become the nearest of these
  std::string name = {};                   // empty: the model gives one
};
// Adds the same number to all pixels of an image. InvalidArgument: factor is not an interval within [-1, 1], or
// value_range is empty.
Layer RandomBrightness(const RandomBrightnessOptions& options);

}  // namespace cohort
