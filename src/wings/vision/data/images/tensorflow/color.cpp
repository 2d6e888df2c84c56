// tf.image: dtypes and colours. Operations on integers convert them to float32 from 0 to 1 and back, where TensorFlow
// multiplies by the largest value plus one half and drops what is behind the point. Products and sums stay operations
// of their own, because one that is fused rounds another way and a byte may tell.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/fail.h"
#include "cohort/data/tf_image.h"
#include "wings/vision/data/images/tensorflow/pictures.h"

namespace cohort {

namespace image {

using images::draw_uniform;
using images::require_colors;
using images::require_pictures;

namespace {

// Returns the largest value of an integer dtype.
int64_t largest_of(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kByte:
      return std::numeric_limits<uint8_t>::max();
    case torch::kChar:
      return std::numeric_limits<int8_t>::max();
    case torch::kShort:
      return std::numeric_limits<int16_t>::max();
    case torch::kInt:
      return std::numeric_limits<int32_t>::max();
    case torch::kLong:
      return std::numeric_limits<int64_t>::max();
    default:
      fail<InvalidArgument>("[image] convert_image_dtype: ", dtype, " is no dtype of images");
  }
}

bool is_integer(torch::ScalarType dtype) {
  return at::isIntegralType(dtype, /*includeBool=*/false);
}

// The smallest value of a dtype of integers that has this largest one.
double smallest_of(torch::ScalarType dtype) {
  return dtype == torch::kByte ? 0.0 : -static_cast<double>(largest_of(dtype)) - 1.0;
}

torch::Tensor between_integers(const torch::Tensor& images, torch::ScalarType dtype, bool saturate) {
  const int64_t from = largest_of(images.scalar_type());
  const int64_t to = largest_of(dtype);
  if (from > to) {
    const torch::Tensor scaled = images.floor_divide((from / 2 + 1) / (to / 2 + 1));
    return (saturate ? scaled.clamp(smallest_of(dtype), static_cast<double>(to)) : scaled).to(dtype);
  }
  return images.to(dtype).mul((to / 2 + 1) / (from / 2 + 1));
}

// Applies a function of floating-point images from 0 to 1 to images of any dtype.
template <typename Function>
torch::Tensor in_floats(const torch::Tensor& images, bool saturate, const Function& function) {
  if (images.is_floating_point()) return function(images);
  return convert_image_dtype(function(convert_image_dtype(images, torch::kFloat)), images.scalar_type(), saturate);
}

struct Planes {
  torch::Tensor first, second, third;
};

Planes planes_of(const torch::Tensor& images) {
  return {images.select(-1, 0), images.select(-1, 1), images.select(-1, 2)};
}

// Hue as a part of the circle, in [0, 1), saturation and value.
Planes hsv_of(const torch::Tensor& images) {
  const Planes rgb = planes_of(images);
  const torch::Tensor value = images.amax({-1});
  const torch::Tensor range = value - images.amin({-1});
  const torch::Tensor one = at::ones({}, images.options());
  const torch::Tensor zero = at::zeros({}, images.options());
  const torch::Tensor colored = range > 0;
  const torch::Tensor saturation = at::where(value > 0, range / at::where(value > 0, value, one), zero);
  const torch::Tensor sixth = at::reciprocal(at::where(colored, range, one) * 6.0);
  const torch::Tensor red = sixth * (rgb.second - rgb.third);
  const torch::Tensor green = sixth * (rgb.third - rgb.first) + 2.0 / 6.0;
  const torch::Tensor blue = sixth * (rgb.first - rgb.second) + 4.0 / 6.0;
  torch::Tensor hue = at::where(rgb.first == value, red, at::where(rgb.second == value, green, blue));
  hue = at::where(colored, hue, zero);
  return {at::where(hue < 0, hue + 1.0, hue), saturation, value};
}

torch::Tensor rgb_of(const Planes& hsv) {
  const torch::Tensor sector = hsv.first * 6.0;
  const auto channel = [&](const torch::Tensor& share) {
    return ((1.0 - hsv.second) + hsv.second * share.clamp(0.0, 1.0)) * hsv.third;
  };
  return at::stack(
      {channel((sector - 3.0).abs() - 1.0), channel(2.0 - (sector - 2.0).abs()), channel(2.0 - (sector - 4.0).abs())},
      -1);
}

void require_factor(const char* what, double factor) {
  if (factor >= 0.0 && std::isfinite(factor)) return;
  fail<InvalidArgument>("[image] ", what, ": the factor is ", factor, ", wanted 0 or more");
}

void require_range(const char* what, double lower, double upper) {
  if (lower >= 0.0 && lower <= upper && std::isfinite(upper)) return;
  fail<InvalidArgument>("[image] ", what, ": factors from ", lower, " to ", upper,
                        ", wanted 0 or more, the lower one first");
}

}  // namespace

torch::Tensor convert_image_dtype(const torch::Tensor& images, torch::ScalarType dtype, bool saturate) {
  require_pictures("convert_image_dtype", images);
  const torch::ScalarType from = images.scalar_type();
  if (from == dtype) return images;
  if (!is_integer(dtype) && !at::isFloatingType(dtype)) largest_of(dtype);
  if (is_integer(from) && is_integer(dtype)) return between_integers(images, dtype, saturate);
  if (is_integer(from)) return images.to(dtype).mul(1.0 / static_cast<double>(largest_of(from)));
  if (!at::isFloatingType(from)) largest_of(from);
  if (!is_integer(dtype)) return images.to(dtype);
  // The largest double below 2^63 stands for int64's largest value, which no double is.
  const double largest = std::min(static_cast<double>(largest_of(dtype)), 9223372036854774784.0);
  const bool wide = dtype == torch::kInt || dtype == torch::kLong;
  const torch::Tensor scaled = (wide ? images.to(torch::kDouble) : images).mul(largest + 0.5);
  return (saturate ? scaled.clamp(smallest_of(dtype), largest) : scaled).to(dtype);
}

torch::Tensor adjust_brightness(const torch::Tensor& images, double delta) {
  require_pictures("adjust_brightness", images);
  return in_floats(images, /*saturate=*/true, [&](const torch::Tensor& x) { return x + delta; });
}

torch::Tensor adjust_contrast(const torch::Tensor& images, double factor) {
  require_pictures("adjust_contrast", images);
  return in_floats(images, /*saturate=*/true, [&](const torch::Tensor& x) {
    const torch::Tensor mean = x.mean({-3, -2}, /*keepdim=*/true);
    return (x - mean) * factor + mean;
  });
}

torch::Tensor adjust_saturation(const torch::Tensor& images, double factor) {
  require_colors("adjust_saturation", images);
  require_factor("adjust_saturation", factor);
  return in_floats(images, /*saturate=*/false, [&](const torch::Tensor& x) {
    Planes hsv = hsv_of(x);
    hsv.second = (hsv.second * factor).clamp(0.0, 1.0);
    return rgb_of(hsv);
  });
}

torch::Tensor adjust_hue(const torch::Tensor& images, double delta) {
  require_colors("adjust_hue", images);
  if (!(delta >= -1.0 && delta <= 1.0)) {
    fail<InvalidArgument>("[image] adjust_hue: delta is ", delta, ", wanted a number from -1 to 1");
  }
  return in_floats(images, /*saturate=*/false, [&](const torch::Tensor& x) {
    Planes hsv = hsv_of(x);
    hsv.first = at::remainder(hsv.first + delta, 1.0);
    return rgb_of(hsv);
  });
}

torch::Tensor adjust_gamma(const torch::Tensor& images, double gamma, double gain) {
  require_pictures("adjust_gamma", images);
  if (!(gamma >= 0.0)) fail<InvalidArgument>("[image] adjust_gamma: gamma is ", gamma, ", wanted 0 or more");
  return in_floats(images, /*saturate=*/true, [&](const torch::Tensor& x) { return x.pow(gamma) * gain; });
}

torch::Tensor rgb_to_grayscale(const torch::Tensor& images) {
  require_colors("rgb_to_grayscale", images);
  return in_floats(images, /*saturate=*/false, [](const torch::Tensor& x) {
    const Planes rgb = planes_of(x);
    const torch::Tensor red = rgb.first * 0.2989;
    const torch::Tensor green = rgb.second * 0.587;
    const torch::Tensor blue = rgb.third * 0.114;
    return (red + green + blue).unsqueeze(-1);
  });
}

torch::Tensor grayscale_to_rgb(const torch::Tensor& images) {
  require_pictures("grayscale_to_rgb", images);
  if (images.size(-1) != 1) {
    fail<InvalidArgument>("[image] grayscale_to_rgb: wanted 1 channel in the last dimension, got ", images.sizes());
  }
  return at::cat({images, images, images}, -1);
}

torch::Tensor rgb_to_hsv(const torch::Tensor& images) {
  require_colors("rgb_to_hsv", images);
  if (!images.is_floating_point()) {
    fail<InvalidArgument>("[image] rgb_to_hsv: wanted floating point from 0 to 1, got ", images.scalar_type());
  }
  const Planes hsv = hsv_of(images);
  return at::stack({hsv.first, hsv.second, hsv.third}, -1);
}

torch::Tensor hsv_to_rgb(const torch::Tensor& images) {
  require_colors("hsv_to_rgb", images);
  if (!images.is_floating_point()) {
    fail<InvalidArgument>("[image] hsv_to_rgb: wanted floating point from 0 to 1, got ", images.scalar_type());
  }
  return rgb_of(planes_of(images));
}

torch::Tensor per_image_standardization(const torch::Tensor& images) {
  require_pictures("per_image_standardization", images);
  const torch::Tensor x = images.to(torch::kFloat);
  const auto pixels = static_cast<double>(x.size(-1) * x.size(-2) * x.size(-3));
  const torch::Tensor mean = x.mean({-3, -2, -1}, /*keepdim=*/true);
  const torch::Tensor apart = x - mean;
  const torch::Tensor deviation = apart.square().mean({-3, -2, -1}, /*keepdim=*/true).sqrt();
  return apart / deviation.clamp_min(1.0 / std::sqrt(pixels));
}

torch::Tensor random_brightness(const torch::Tensor& images, double largest_delta, at::Generator generator) {
  require_factor("random_brightness", largest_delta);
  return adjust_brightness(images, draw_uniform(-largest_delta, largest_delta, generator));
}

torch::Tensor random_contrast(const torch::Tensor& images, double lower, double upper, at::Generator generator) {
  require_range("random_contrast", lower, upper);
  return adjust_contrast(images, draw_uniform(lower, upper, generator));
}

torch::Tensor random_saturation(const torch::Tensor& images, double lower, double upper, at::Generator generator) {
  require_range("random_saturation", lower, upper);
  return adjust_saturation(images, draw_uniform(lower, upper, generator));
}

torch::Tensor random_hue(const torch::Tensor& images, double largest_delta, at::Generator generator) {
  if (!(largest_delta >= 0.0 && largest_delta <= 0.5)) {
    fail<InvalidArgument>("[image] random_hue: the largest delta is ", largest_delta, ", wanted 0 to 0.5");
  }
  return adjust_hue(images, draw_uniform(-largest_delta, largest_delta, generator));
}

}  // namespace image

namespace imagenet_utils {

torch::Tensor preprocess_input(const torch::Tensor& images, PreprocessMode mode, DataFormat data_format) {
  images::require_pictures("preprocess_input", images);
  const int64_t channels = data_format == DataFormat::kChannelsLast ? images.dim() - 1 : images.dim() - 3;
  if (images.size(channels) != 3) {
    fail<InvalidArgument>("[image] preprocess_input: wanted 3 channels in dimension ", channels, ", got ",
                          images.sizes());
  }
  const torch::Tensor x = images.is_floating_point() ? images : images.to(torch::kFloat);
  const auto along_channels = [&](std::initializer_list<double> values) {
    std::vector<int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape[static_cast<std::size_t>(channels)] = 3;
    return at::tensor(at::ArrayRef<double>(values), x.options()).view(shape);
  };
  switch (mode) {
    case PreprocessMode::kCaffe:
      return x.flip({channels}) - along_channels({103.939, 116.779, 123.68});
    case PreprocessMode::kTf:
      return x / 127.5 - 1.0;
    case PreprocessMode::kTorch:
      return (x / 255.0 - along_channels({0.485, 0.456, 0.406})) / along_channels({0.229, 0.224, 0.225});
  }
  fail<InvalidArgument>("[image] preprocess_input: there is no mode number ", static_cast<int>(mode));
}

}  // namespace imagenet_utils

}  // namespace cohort
