// Draws pictures of discs, rectangles and triangles with the class of each pixel.
#pragma once

#include <cstdint>
#include <vector>

#include "data/random.h"

namespace cohort::datasets {

constexpr int kShapeClasses = 4;  // the ground, discs, rectangles, triangles

struct ShapesPicture {
  std::vector<uint8_t> pixels;  // [3, height, width]
  std::vector<uint8_t> labels;  // [height, width], below kShapeClasses
};

// Draws two to five shapes of random place, size, direction and colour on a ground of two colours, over lines that
// belong to the ground, with noise. Later shapes cover earlier ones.
ShapesPicture draw_shapes(int height, int width, Random& random);

}  // namespace cohort::datasets
