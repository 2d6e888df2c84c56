// The operations of TensorFlow's Model Garden on pictures before a network (official.vision.ops.preprocess_ops), with
// its numbers. Pictures are [height, width, channels]. A shape, a size or an option that does not fit is
// InvalidArgument. A generator may be used by one thread at a time, everything else is thread-safe.
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "cohort/data/tf_image.h"

namespace cohort::preprocess_ops {

// Subtracts the offset of each channel and divides by its scale, as float32. Integers count from 0 to 1; floating-point
// values are taken as they are. The defaults are ImageNet's; its numbers for values from 0 to 255 are (123.675, 116.28,
// 103.53) and (58.395, 57.12, 57.375).
torch::Tensor normalize_image(const torch::Tensor& image, const std::vector<double>& offset = {0.485, 0.456, 0.406},
                              const std::vector<double>& scale = {0.229, 0.224, 0.225});
// Returns the size in multiples of the stride, the smallest ones that are not below it.
std::array<int64_t, 2> compute_padded_size(const std::array<int64_t, 2>& desired_size, int64_t stride);

// A picture and what was done to it.
struct ResizedImage {
  torch::Tensor image;  // the picture afterwards
  // float32 [4, 2]: the size that came, the size that was wanted, the factors, the offset; height first.
  torch::Tensor info;
};
struct ResizeAndCropOptions {
  // The size that the result is filled up to with zeros; unset: it is not.
  std::optional<std::array<int64_t, 2>> padded_size = std::nullopt;
  double aug_scale_min = 1.0;  // the least number that the desired size is multiplied by
  double aug_scale_max = 1.0;  // the largest one; another range than 1 to 1 needs a generator
  image::ResizeMethod method = image::ResizeMethod::kBilinear;  // the sort of interpolation
  bool keep_aspect_ratio = true;  // the picture becomes as large as fits, without distortion
  bool centered_crop = false;     // the zeros lie around instead of behind
};
// Resizes a picture to fit in desired_size (height, width), cuts out a part of that size where it is larger, and fills
// it up (RetinaNet's way).
ResizedImage resize_and_crop_image(const torch::Tensor& image, const std::array<int64_t, 2>& desired_size,
                                   const ResizeAndCropOptions& options = {},
                                   std::optional<at::Generator> generator = std::nullopt);
// Moves boxes [n, 4] (top, left, bottom, right, in pixels) as the picture with this info was, and cuts them off at the
// output's borders.
torch::Tensor resize_and_crop_boxes(const torch::Tensor& boxes, const torch::Tensor& info,
                                    const std::array<int64_t, 2>& output_size);

struct ResizeImageOptions {
  std::optional<int64_t> max_size = std::nullopt;               // the longer side does not exceed it
  image::ResizeMethod method = image::ResizeMethod::kBilinear;  // the sort of interpolation
};
// Resizes a picture so that its shorter side has this size.
ResizedImage resize_image(const torch::Tensor& image, int64_t shorter_side, const ResizeImageOptions& options = {});
// Resizes a picture to this height and width.
ResizedImage resize_image(const torch::Tensor& image, const std::array<int64_t, 2>& size,
                          image::ResizeMethod method = image::ResizeMethod::kBilinear);

// Returns the square in the middle whose side is a fraction of the shorter side, as a view.
torch::Tensor center_crop_image(const torch::Tensor& image, double center_crop_fraction = 0.875);

struct RandomCropImageOptions {
  std::array<double, 2> aspect_ratio_range = {3.0 / 4.0, 4.0 / 3.0};  // the ratio of width to height
  std::array<double, 2> area_range = {0.08, 1.0};                     // the part of the picture's area
  int64_t max_attempts = 10;                                          // after so many the whole picture is returned
};
// Returns a part of random area and shape, as a view.
torch::Tensor random_crop_image(const torch::Tensor& image, at::Generator generator,
                                const RandomCropImageOptions& options = {});
// Mirrors left and right.
torch::Tensor horizontal_flip_image(const torch::Tensor& image);
// Mirrors left and right with this probability.
torch::Tensor random_horizontal_flip(const torch::Tensor& image, at::Generator generator, double prob = 0.5);
// Mirrors top and bottom with this probability.
torch::Tensor random_vertical_flip(const torch::Tensor& image, at::Generator generator, double prob = 0.5);

// Blends a picture with black by a factor from max(0, 1 - reach) to 1 + reach. uint8 [height, width, 3], here and
// below.
torch::Tensor random_brightness(const torch::Tensor& image, double reach, at::Generator generator);
// Changes the contrast by such a factor, as augment::contrast().
torch::Tensor random_contrast(const torch::Tensor& image, double reach, at::Generator generator);
// Blends a picture with its grey image by such a factor.
torch::Tensor random_saturation(const torch::Tensor& image, double reach, at::Generator generator);
// Blends a picture with its grey image: 0 is grey, 1 the picture.
torch::Tensor saturation(const torch::Tensor& image, double factor);
struct ColorJitterOptions {
  double brightness = 0.0;  // the reach of random_brightness()
  double contrast = 0.0;    // the reach of random_contrast()
  double saturation = 0.0;  // the reach of random_saturation()
};
// Applies the three in this order.
torch::Tensor color_jitter(const torch::Tensor& image, at::Generator generator, const ColorJitterOptions& options);

// Cuts or fills the first dimension to this size.
torch::Tensor clip_or_pad_to_fixed_size(const torch::Tensor& values, int64_t size, double constant_value = 0.0);

}  // namespace cohort::preprocess_ops
