// The code that the operations with TensorFlow's layout share: pictures are [height, width, channels], or batches of
// them.
#pragma once

#include <ATen/Generator.h>
#include <torch/types.h>

#include <cstdint>

namespace cohort::images {

// Fails with InvalidArgument unless the tensor is a picture or a batch of pictures, with pixels.
void require_pictures(const char* what, const torch::Tensor& images);
// The same for pictures of three channels.
void require_colors(const char* what, const torch::Tensor& images);
// Fails with InvalidArgument unless the tensor is one picture, uint8 [height, width, 3].
void require_bytes(const char* what, const torch::Tensor& image);
// Fails with InvalidArgument unless both sizes are positive.
void require_size(const char* what, int64_t height, int64_t width);

// Returns the sizes of the dimensions that count from the end: channels last.
inline int64_t rows_of(const torch::Tensor& images) {
  return images.size(-3);
}
inline int64_t columns_of(const torch::Tensor& images) {
  return images.size(-2);
}

// Draws a number from [low, high).
double draw_uniform(double low, double high, const at::Generator& generator);
// Draws an integer from [0, bound).
int64_t draw_below(int64_t bound, const at::Generator& generator);

}  // namespace cohort::images
