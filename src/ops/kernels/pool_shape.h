// The numbers of a pooling, for files that are compiled once an instruction set: only declarations.
#pragma once

#include <stdint.h>

namespace cohort::kernels {

// An image of [height, width, channels] and the windows on it. What lies beyond the image is not there.
struct PoolShape {
  int64_t height;
  int64_t width;
  int64_t channels;
  int64_t windows_down;  // the height of the result
  int64_t windows_across;
  int64_t window_height;
  int64_t window_width;
  int64_t stride_down;
  int64_t stride_across;
  int64_t above;  // how far the first windows begin above the image and left of it
  int64_t left;
};

}  // namespace cohort::kernels
