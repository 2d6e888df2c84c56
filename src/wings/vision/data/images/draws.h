// The random numbers of the changes to pictures, apart from the changes.
#pragma once

#include <torch/types.h>

#include <cstdint>

#include "cohort/data/augment.h"

namespace cohort::images {

// The part of a picture that a crop takes: its place in the picture with the padding.
struct CropPlace {
  int64_t top = 0;
  int64_t left = 0;
};

// InvalidArgument: a picture of this size has no such part, or not this padding.
void require_crop(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width,
                  const RandomCropOptions& options);
// Draws the place of a part of this size, which has to be there.
CropPlace draw_crop(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width,
                    const at::Generator& generator, const RandomCropOptions& options);
// Draws whether a picture is flipped.
bool draw_flip(const at::Generator& generator, double probability);

}  // namespace cohort::images
