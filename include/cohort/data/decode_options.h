// DecodeOptions: how JPEG and PNG become tensors, for readers of files that may have pictures.
#pragma once

#include <cstdint>

namespace cohort {

struct DecodeOptions {
  // 3: RGB, 1: grey, 0: grey where the file is, else RGB. CMYK becomes RGB; transparency is left out.
  int channels = 3;
  // JPEG only: it may be decoded at 1/2, 1/4 or 1/8 of its size, which is faster, as long as both sides are still at
  // least so long. 0: at its own size.
  int64_t at_least = 0;
  // JPEG only: turned upright as the camera's note (EXIF) says.
  bool upright = true;
  // The most pixels that a file may have; more are refused before memory is taken for them.
  int64_t most_pixels = int64_t{1} << 27;
};

}  // namespace cohort
