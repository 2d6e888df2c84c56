// Model Garden's preprocess_ops. Sizes are computed in float32 and halves are rounded to even, as there.
#include "cohort/data/preprocess_ops.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "cohort/data/auto_augment.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort::preprocess_ops {

using images::draw_below;
using images::draw_uniform;
using images::require_pictures;

namespace {

void require_picture(const char* what, const torch::Tensor& image) {
  require_pictures(what, image);
  if (image.dim() == 3) return;
  fail<InvalidArgument>("[image] ", what, ": wanted one picture [height, width, channels], got ", image.sizes());
}

torch::Tensor info_of(const std::array<float, 8>& rows) {
  return at::tensor(at::ArrayRef<float>(rows.data(), rows.size()), at::TensorOptions(torch::kFloat)).view({4, 2});
}

float rounded(float x) {
  return std::nearbyint(x);
}

// One number for each channel.
torch::Tensor along_channels(const char* name, const torch::Tensor& image, const std::vector<double>& values) {
  if (static_cast<int64_t>(values.size()) == image.size(-1))
    return at::tensor(values, at::TensorOptions(torch::kFloat));
  fail<InvalidArgument>("[image] normalize_image: ", values.size(), " numbers in ", name, " for ", image.size(-1),
                        " channels");
}

double drawn_factor(const char* what, double reach, const at::Generator& generator) {
  if (!(reach >= 0.0)) fail<InvalidArgument>("[image] ", what, ": the reach is ", reach, ", wanted 0 or more");
  return draw_uniform(std::max(0.0, 1.0 - reach), 1.0 + reach, generator);
}

bool drawn_chance(const char* what, double prob, const at::Generator& generator) {
  if (prob >= 0.0 && prob <= 1.0) return draw_uniform(0.0, 1.0, generator) < prob;
  fail<InvalidArgument>("[image] ", what, ": prob is ", prob, ", wanted 0 to 1");
}

torch::Tensor padded(const torch::Tensor& image, const ResizeAndCropOptions& options) {
  if (!options.padded_size) return image;
  const auto [height, width] = *options.padded_size;
  const int64_t top = options.centered_crop ? std::max<int64_t>((height - image.size(0)) / 2, 0) : 0;
  const int64_t left = options.centered_crop ? std::max<int64_t>((width - image.size(1)) / 2, 0) : 0;
  return image::pad_to_bounding_box(image, top, left, height, width);
}

// The height and width at which the shorter side has the size that was asked for.
std::array<int64_t, 2> size_with_aspect(int64_t height, int64_t width, int64_t size, std::optional<int64_t> max_size) {
  const auto shorter = static_cast<float>(std::min(height, width));
  const auto longer = static_cast<float>(std::max(height, width));
  if (max_size && longer / shorter * static_cast<float>(size) > static_cast<float>(*max_size)) {
    size = static_cast<int64_t>(std::floor(static_cast<float>(*max_size) * shorter / longer));
  }
  if (std::min(height, width) == size) return {height, width};
  const auto other = static_cast<int64_t>(static_cast<float>(size) * longer / shorter);
  return width < height ? std::array<int64_t, 2>{other, size} : std::array<int64_t, 2>{size, other};
}

}  // namespace

torch::Tensor normalize_image(const torch::Tensor& image, const std::vector<double>& offset,
                              const std::vector<double>& scale) {
  require_pictures("normalize_image", image);
  const torch::Tensor x = image::convert_image_dtype(image, torch::kFloat);
  const torch::Tensor centered = x - along_channels("offset", image, offset);
  return centered / along_channels("scale", image, scale);
}

std::array<int64_t, 2> compute_padded_size(const std::array<int64_t, 2>& desired_size, int64_t stride) {
  if (stride < 1) fail<InvalidArgument>("[image] compute_padded_size: the stride is ", stride, ", wanted 1 or more");
  const auto up = [&](int64_t size) { return (size + stride - 1) / stride * stride; };
  return {up(desired_size[0]), up(desired_size[1])};
}

ResizedImage resize_and_crop_image(const torch::Tensor& image, const std::array<int64_t, 2>& desired_size,
                                   const ResizeAndCropOptions& options, std::optional<at::Generator> generator) {
  require_picture("resize_and_crop_image", image);
  images::require_size("resize_and_crop_image", desired_size[0], desired_size[1]);
  const bool jitters = options.aug_scale_min != 1.0 || options.aug_scale_max != 1.0;
  if (!(options.aug_scale_min > 0.0 && options.aug_scale_min <= options.aug_scale_max) || (jitters && !generator)) {
    fail<InvalidArgument>("[image] resize_and_crop_image: scales from ", options.aug_scale_min, " to ",
                          options.aug_scale_max, generator ? "" : " without a generator",
                          ", wanted numbers above 0, the lower one first, and a generator for others than 1");
  }
  const std::array<float, 2> size = {static_cast<float>(image.size(0)), static_cast<float>(image.size(1))};
  std::array<float, 2> scaled = {static_cast<float>(desired_size[0]), static_cast<float>(desired_size[1])};
  const std::array<float, 2> desired = scaled;
  if (jitters) {
    const auto factor = static_cast<float>(draw_uniform(options.aug_scale_min, options.aug_scale_max, *generator));
    scaled = {rounded(factor * scaled[0]), rounded(factor * scaled[1])};
  }
  if (options.keep_aspect_ratio) {
    const float scale = std::min(scaled[0] / size[0], scaled[1] / size[1]);
    scaled = {rounded(size[0] * scale), rounded(size[1] * scale)};
  }
  std::array<int64_t, 2> offset = {0, 0};
  torch::Tensor resized =
      image::resize(image, std::max<int64_t>(1, static_cast<int64_t>(scaled[0])),
                    std::max<int64_t>(1, static_cast<int64_t>(scaled[1])), {.method = options.method});
  if (jitters) {
    for (std::size_t i = 0; i < 2; ++i) {
      const double room = std::max(0.0F, scaled[i] - desired[i]);
      offset[i] = static_cast<int64_t>(room * draw_uniform(0.0, 1.0, *generator));
    }
    resized = resized.narrow(0, offset[0], std::min(desired_size[0], resized.size(0) - offset[0]))
                  .narrow(1, offset[1], std::min(desired_size[1], resized.size(1) - offset[1]));
  }
  return {padded(resized, options),
          info_of({size[0], size[1], desired[0], desired[1], scaled[0] / size[0], scaled[1] / size[1],
                   static_cast<float>(offset[0]), static_cast<float>(offset[1])})};
}

torch::Tensor resize_and_crop_boxes(const torch::Tensor& boxes, const torch::Tensor& info,
                                    const std::array<int64_t, 2>& output_size) {
  const bool fits = boxes.defined() && boxes.dim() == 2 && boxes.size(1) == 4 && info.defined() && info.dim() == 2 &&
                    info.size(0) == 4 && info.size(1) == 2;
  if (!fits) fail<InvalidArgument>("[image] resize_and_crop_boxes: wanted boxes [n, 4] and info [4, 2]");
  const torch::Tensor moved = boxes.to(torch::kFloat) * info[2].repeat({2}) - info[3].repeat({2});
  const auto height = static_cast<float>(output_size[0]);
  const auto width = static_cast<float>(output_size[1]);
  return at::minimum(moved, at::tensor({height, width, height, width})).clamp_min(0.0);
}

ResizedImage resize_image(const torch::Tensor& image, int64_t shorter_side, const ResizeImageOptions& options) {
  require_picture("resize_image", image);
  return resize_image(image, size_with_aspect(image.size(0), image.size(1), shorter_side, options.max_size),
                      options.method);
}

ResizedImage resize_image(const torch::Tensor& image, const std::array<int64_t, 2>& size, image::ResizeMethod method) {
  require_picture("resize_image", image);
  const auto height = static_cast<float>(image.size(0));
  const auto width = static_cast<float>(image.size(1));
  const auto new_height = static_cast<float>(size[0]);
  const auto new_width = static_cast<float>(size[1]);
  return {image::resize(image, size[0], size[1], {.method = method}),
          info_of({height, width, new_height, new_width, new_height / height, new_width / width, 0.0F, 0.0F})};
}

torch::Tensor center_crop_image(const torch::Tensor& image, double center_crop_fraction) {
  require_picture("center_crop_image", image);
  if (!(center_crop_fraction > 0.0 && center_crop_fraction <= 1.0)) {
    fail<InvalidArgument>("[image] center_crop_image: the fraction is ", center_crop_fraction,
                          ", wanted a number in (0, 1]");
  }
  const float side =
      static_cast<float>(center_crop_fraction) * static_cast<float>(std::min(image.size(0), image.size(1)));
  const auto offset = [&](int64_t size) { return static_cast<int64_t>((static_cast<float>(size) - side) / 2.0F); };
  const auto whole = std::max<int64_t>(1, static_cast<int64_t>(side));
  return image::crop_to_bounding_box(image, offset(image.size(0)), offset(image.size(1)), whole, whole);
}

torch::Tensor random_crop_image(const torch::Tensor& image, at::Generator generator,
                                const RandomCropImageOptions& options) {
  require_picture("random_crop_image", image);
  const auto [min_ratio, max_ratio] = options.aspect_ratio_range;
  const auto [min_area, max_area] = options.area_range;
  const bool areas = min_area > 0.0 && min_area <= max_area && max_area <= 1.0;
  if (!areas || !(min_ratio > 0.0 && min_ratio <= max_ratio)) {
    fail<InvalidArgument>("[image] random_crop_image: areas from ", min_area, " to ", max_area, " and ratios from ",
                          min_ratio, " to ", max_ratio,
                          ", wanted areas in (0, 1], ratios above 0, the lower one first");
  }
  const auto rows = static_cast<double>(image.size(0));
  const auto columns = static_cast<double>(image.size(1));
  for (int64_t i = 0; i < options.max_attempts; ++i) {
    const double ratio = draw_uniform(min_ratio, max_ratio, generator);
    // The heights at which the area lies in its range and the width in the picture, as TensorFlow draws them.
    const double least = std::sqrt(min_area * rows * columns / ratio);
    const double most = std::min({std::sqrt(max_area * rows * columns / ratio), rows, columns / ratio});
    if (least > most) continue;
    const auto height = std::max<int64_t>(1, std::llround(draw_uniform(least, most, generator)));
    const auto width = static_cast<int64_t>(std::llround(static_cast<double>(height) * ratio));
    if (height > image.size(0) || width < 1 || width > image.size(1)) continue;
    const int64_t top = draw_below(image.size(0) - height + 1, generator);
    const int64_t left = draw_below(image.size(1) - width + 1, generator);
    return image::crop_to_bounding_box(image, top, left, height, width);
  }
  return image;
}

torch::Tensor horizontal_flip_image(const torch::Tensor& image) {
  return image::flip_left_right(image);
}

torch::Tensor random_horizontal_flip(const torch::Tensor& image, at::Generator generator, double prob) {
  return drawn_chance("random_horizontal_flip", prob, generator) ? image::flip_left_right(image) : image;
}

torch::Tensor random_vertical_flip(const torch::Tensor& image, at::Generator generator, double prob) {
  return drawn_chance("random_vertical_flip", prob, generator) ? image::flip_up_down(image) : image;
}

torch::Tensor random_brightness(const torch::Tensor& image, double reach, at::Generator generator) {
  return augment::brightness(image, drawn_factor("random_brightness", reach, generator));
}

torch::Tensor random_contrast(const torch::Tensor& image, double reach, at::Generator generator) {
  return augment::contrast(image, drawn_factor("random_contrast", reach, generator));
}

torch::Tensor random_saturation(const torch::Tensor& image, double reach, at::Generator generator) {
  return saturation(image, drawn_factor("random_saturation", reach, generator));
}

torch::Tensor saturation(const torch::Tensor& image, double factor) {
  return augment::color(image, factor);
}

torch::Tensor color_jitter(const torch::Tensor& image, at::Generator generator, const ColorJitterOptions& options) {
  torch::Tensor result = random_brightness(image, options.brightness, generator);
  result = random_contrast(result, options.contrast, generator);
  return random_saturation(result, options.saturation, generator);
}

torch::Tensor clip_or_pad_to_fixed_size(const torch::Tensor& values, int64_t size, double constant_value) {
  if (!values.defined() || values.dim() == 0 || size < 0) {
    fail<InvalidArgument>(
        "[image] clip_or_pad_to_fixed_size: wanted values with a first dimension and a size of 0 or "
        "more, got the size ",
        size);
  }
  const torch::Tensor kept = values.slice(0, 0, size);
  std::vector<int64_t> missing = kept.sizes().vec();
  missing[0] = size - kept.size(0);
  return at::cat({kept, at::full(missing, constant_value, kept.options())}, 0);
}

}  // namespace cohort::preprocess_ops
