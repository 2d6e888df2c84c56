// The operations of Model Garden's augment.py. Sums and products of pixels stay operations of their own: one that is
// fused rounds another way, and what is behind the point is dropped.
#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/fail.h"
#include "cohort/data/auto_augment.h"
#include "cohort/data/tf_image.h"
#include "wings/vision/data/images/adjust.h"
#include "wings/vision/data/images/tensorflow/fill.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort {

namespace images {

torch::Tensor fill_rectangle(const torch::Tensor& image, const Rectangle& about, const torch::Tensor& with) {
  const int64_t top = std::max<int64_t>(0, about.row - about.half_height);
  const int64_t left = std::max<int64_t>(0, about.column - about.half_width);
  const int64_t bottom = std::min(image.size(0), about.row + about.half_height);
  const int64_t right = std::min(image.size(1), about.column + about.half_width);
  torch::Tensor result = image.clone();
  if (top < bottom && left < right) {
    const auto inside = [&](const torch::Tensor& of) { return of.slice(0, top, bottom).slice(1, left, right); };
    inside(result).copy_(inside(with.expand_as(image)));
  }
  return result;
}

}  // namespace images

namespace augment {

using images::columns_of;
using images::require_bytes;
using images::rows_of;

namespace {

// Returns where the coordinate lies in an image of this size that goes on as its mirror image, outermost pixels twice.
torch::Tensor mirrored(const torch::Tensor& coordinate, int64_t size) {
  const auto turn = static_cast<double>(2 * size);
  const torch::Tensor negative = at::where(coordinate < 0, -coordinate - 1.0, coordinate);
  const torch::Tensor within = at::fmod(negative, turn);
  const torch::Tensor reflected = at::where(within >= static_cast<double>(size), turn - within - 1.0, within);
  return reflected.clamp(0.0, static_cast<double>(size - 1));
}

// Rounds halves away from zero; coordinates are not negative.
torch::Tensor nearest(const torch::Tensor& coordinate) {
  return at::floor(coordinate + 0.5).to(torch::kLong);
}

// Takes each pixel from where the matrix [a b c; d e f] puts it (column first).
torch::Tensor transform(const char* what, const torch::Tensor& image, const std::array<float, 6>& matrix) {
  require_bytes(what, image);
  const int64_t height = rows_of(image);
  const int64_t width = columns_of(image);
  const torch::Tensor x = at::arange(width, at::TensorOptions(torch::kFloat)).view({1, width});
  const torch::Tensor y = at::arange(height, at::TensorOptions(torch::kFloat)).view({height, 1});
  const auto place = [&](std::size_t row, int64_t size) {
    const torch::Tensor sum = (x * matrix[row]).add(y * matrix[row + 1]).add(matrix[row + 2]);
    return nearest(mirrored(sum, size)).clamp_max(size - 1);
  };
  const torch::Tensor flat = place(3, height).mul(width).add(place(0, width)).view({-1});
  return image.reshape({height * width, 3}).index_select(0, flat).view({height, width, 3});
}

}  // namespace

torch::Tensor blend(const torch::Tensor& first, const torch::Tensor& second, double factor) {
  if (factor == 0.0) return first;
  if (factor == 1.0) return second;
  const torch::Tensor from = first.to(torch::kFloat);
  const torch::Tensor scaled = (second.to(torch::kFloat) - from) * factor;
  return (from + scaled).clamp_(0.0, 255.0).to(torch::kByte);
}

torch::Tensor autocontrast(const torch::Tensor& image) {
  require_bytes("autocontrast", image);
  const torch::Tensor x = image.to(torch::kFloat);
  const torch::Tensor least = x.amin({0, 1});
  const torch::Tensor range = x.amax({0, 1}) - least;
  const torch::Tensor flat = range == 0;
  const torch::Tensor scale = at::full({}, 255.0F) / at::where(flat, at::ones({}), range);
  const torch::Tensor scaled = x * scale;
  const torch::Tensor stretched = (scaled + -least * scale).clamp(0.0, 255.0).to(torch::kByte);
  return at::where(flat, image, stretched);
}

torch::Tensor equalize(const torch::Tensor& image) {
  require_bytes("equalize", image);
  return images::equalize(image.permute({2, 0, 1})).permute({1, 2, 0}).contiguous();
}

torch::Tensor invert(const torch::Tensor& image) {
  require_bytes("invert", image);
  return 255 - image;
}

torch::Tensor solarize(const torch::Tensor& image, int64_t threshold) {
  require_bytes("solarize", image);
  return at::where(image.to(torch::kInt) < threshold, image, 255 - image);
}

torch::Tensor solarize_add(const torch::Tensor& image, int64_t addition, int64_t threshold) {
  require_bytes("solarize_add", image);
  const torch::Tensor wide = image.to(torch::kLong);
  return at::where(wide < threshold, (wide + addition).clamp(0, 255), wide).to(torch::kByte);
}

torch::Tensor posterize(const torch::Tensor& image, int64_t bits) {
  require_bytes("posterize", image);
  if (bits < 0 || bits > 8) fail<InvalidArgument>("[image] posterize: bits are ", bits, ", wanted 0 to 8");
  const int64_t shift = std::min<int64_t>(8 - bits, 7);  // TensorFlow never shifts a byte by more than 7
  return image.bitwise_and(static_cast<uint8_t>(0xff << shift));
}

torch::Tensor color(const torch::Tensor& image, double factor) {
  return blend(grayscale(image), image, factor);
}

torch::Tensor contrast(const torch::Tensor& image, double factor) {
  require_bytes("contrast", image);
  return image::adjust_contrast(image, factor);
}

torch::Tensor brightness(const torch::Tensor& image, double factor) {
  require_bytes("brightness", image);
  return blend(at::zeros_like(image), image, factor);
}

torch::Tensor sharpness(const torch::Tensor& image, double factor) {
  require_bytes("sharpness", image);
  const int64_t height = rows_of(image);
  const int64_t width = columns_of(image);
  torch::Tensor smooth = image.clone();
  if (height > 2 && width > 2) {
    const torch::Tensor x = image.to(torch::kFloat);
    torch::Tensor sum = at::zeros({height - 2, width - 2, 3});
    for (int64_t i = 0; i < 9; ++i) {
      const float weight = (i == 4 ? 5.0F : 1.0F) / 13.0F;
      sum.add_(x.narrow(0, i / 3, height - 2).narrow(1, i % 3, width - 2) * weight);
    }
    smooth.narrow(0, 1, height - 2).narrow(1, 1, width - 2).copy_(sum.clamp(0.0, 255.0).to(torch::kByte));
  }
  return blend(smooth, image, factor);
}

torch::Tensor grayscale(const torch::Tensor& image) {
  require_bytes("grayscale", image);
  return image::grayscale_to_rgb(image::rgb_to_grayscale(image));
}

torch::Tensor translate_x(const torch::Tensor& image, double pixels) {
  return transform("translate_x", image, {1.0F, 0.0F, static_cast<float>(pixels), 0.0F, 1.0F, 0.0F});
}

torch::Tensor translate_y(const torch::Tensor& image, double pixels) {
  return transform("translate_y", image, {1.0F, 0.0F, 0.0F, 0.0F, 1.0F, static_cast<float>(pixels)});
}

torch::Tensor shear_x(const torch::Tensor& image, double level) {
  return transform("shear_x", image, {1.0F, static_cast<float>(level), 0.0F, 0.0F, 1.0F, 0.0F});
}

torch::Tensor shear_y(const torch::Tensor& image, double level) {
  return transform("shear_y", image, {1.0F, 0.0F, 0.0F, static_cast<float>(level), 1.0F, 0.0F});
}

torch::Tensor rotate(const torch::Tensor& image, double degrees) {
  require_bytes("rotate", image);
  constexpr double kRadians = 3.14159265358979323846 / 180.0;
  const auto angle = static_cast<float>(degrees * kRadians);
  const float cosine = std::cos(angle);
  const float sine = std::sin(angle);
  const auto right = static_cast<float>(columns_of(image) - 1);
  const auto bottom = static_cast<float>(rows_of(image) - 1);
  const float x_offset = (right - (cosine * right - sine * bottom)) / 2.0F;
  const float y_offset = (bottom - (sine * right + cosine * bottom)) / 2.0F;
  return transform("rotate", image, {cosine, -sine, x_offset, sine, cosine, y_offset});
}

torch::Tensor gaussian_blur(const torch::Tensor& image, double deviation) {
  require_bytes("gaussian_blur", image);
  const int64_t height = rows_of(image);
  const int64_t width = columns_of(image);
  if (!(deviation > 0.0) || height < 2 || width < 2) {
    fail<InvalidArgument>("[image] gaussian_blur: a deviation of ", deviation, " and a picture ", image.sizes(),
                          ", wanted a deviation above 0 and 2 by 2 pixels or more");
  }
  // In the order of TensorFlow's operations: a softmax that multiplies by the reciprocal, and sums of products that are
  // rounded once.
  const auto sigma = static_cast<float>(deviation);
  const auto beside = static_cast<float>(std::exp(static_cast<double>(-1.0F / (2.0F * (sigma * sigma)))));
  const float middle = 1.0F / (beside + beside + 1.0F);
  const std::array<float, 3> side = {beside * middle, middle, beside * middle};
  const torch::Tensor x = at::reflection_pad2d(image.to(torch::kDouble).permute({2, 0, 1}), {1, 1, 1, 1});
  torch::Tensor sum = at::zeros({3, height, width});
  for (std::size_t i = 0; i < 9; ++i) {
    const auto row = static_cast<int64_t>(i / 3), column = static_cast<int64_t>(i % 3);
    const float weight = side[i / 3] * side[i % 3];
    sum = (x.narrow(1, row, height).narrow(2, column, width) * static_cast<double>(weight) + sum).to(torch::kFloat);
  }
  return sum.clamp(0.0, 255.0).to(torch::kByte).permute({1, 2, 0}).contiguous();
}

torch::Tensor cutout(const torch::Tensor& image, int64_t half_side, at::Generator generator, int64_t replace) {
  require_bytes("cutout", image);
  if (half_side < 0 || replace < 0 || replace > 255) {
    fail<InvalidArgument>("[image] cutout: half a side of ", half_side, " and the value ", replace,
                          ", wanted 0 or more and 0 to 255");
  }
  const int64_t row = images::draw_below(rows_of(image), generator);
  const int64_t column = images::draw_below(columns_of(image), generator);
  return images::fill_rectangle(image,
                                {.row = row, .column = column, .half_height = half_side, .half_width = half_side},
                                at::full({}, replace, image.options()));
}

}  // namespace augment

}  // namespace cohort
