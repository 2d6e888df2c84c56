// Rectangles in pictures, for cutout, random erasing and CutMix.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace cohort::images {

// A rectangle about a pixel; what lies outside the picture is cut off.
struct Rectangle {
  int64_t row = 0;
  int64_t column = 0;
  int64_t half_height = 0;
  int64_t half_width = 0;
};

// Returns a copy of a picture [height, width, channels] whose rectangle has the pixels of `with`, which is expanded.
torch::Tensor fill_rectangle(const torch::Tensor& image, const Rectangle& about, const torch::Tensor& with);

}  // namespace cohort::images
