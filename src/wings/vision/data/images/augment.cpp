// Random changes to pictures, as torchvision makes them. The last step, to floating-point planes, is a kernel that
// takes pointers into CPU tensors.
#include "cohort/data/augment.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "wings/vision/data/images/adjust.h"
#include "wings/vision/data/images/draws.h"
#include "wings/vision/data/images/kernels/pixel_table.h"
#include "wings/vision/data/images/require.h"

namespace cohort {

namespace {

double uniform(double low, double high, const at::Generator& generator) {
  return low + (high - low) * at::rand({}, generator, at::TensorOptions(torch::kDouble)).item<double>();
}

// Uniform in [0, bound].
int64_t up_to(int64_t bound, const at::Generator& generator) {
  return at::randint(0, bound + 1, {}, generator, at::TensorOptions(torch::kLong)).item<int64_t>();
}

struct PixelBox {
  int64_t top, left, height, width;
};

torch::Tensor part(const torch::Tensor& image, const PixelBox& box) {
  return image.narrow(1, box.top, box.height).narrow(2, box.left, box.width);
}

PixelBox random_box(int64_t height, int64_t width, const at::Generator& generator,
                    const RandomResizedCropOptions& options) {
  constexpr int kTries = 10;
  const auto area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * uniform(options.min_area, options.max_area, generator);
    const double ratio = std::exp(uniform(std::log(options.min_ratio), std::log(options.max_ratio), generator));
    const auto w = static_cast<int64_t>(std::nearbyint(std::sqrt(wanted * ratio)));
    const auto h = static_cast<int64_t>(std::nearbyint(std::sqrt(wanted / ratio)));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const int64_t top = up_to(height - h, generator);
    return {top, up_to(width - w, generator), h, w};
  }
  // The largest in the middle whose shape is allowed.
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width;
  int64_t h = height;
  if (ratio < options.min_ratio) h = static_cast<int64_t>(std::nearbyint(static_cast<double>(w) / options.min_ratio));
  if (ratio > options.max_ratio) w = static_cast<int64_t>(std::nearbyint(static_cast<double>(h) * options.max_ratio));
  return {(height - h) / 2, (width - w) / 2, h, w};
}

}  // namespace

torch::Tensor random_horizontal_flip(const torch::Tensor& image, at::Generator generator, double probability) {
  images::require_image("random_horizontal_flip", image);
  return images::draw_flip(generator, probability) ? image.flip({2}) : image;
}

bool images::draw_flip(const at::Generator& generator, double probability) {
  return uniform(0.0, 1.0, generator) < probability;
}

namespace {

// Returns the place from which the pixel at `i` is taken, of `size` in a row.
int64_t source_of(int64_t i, int64_t size, PaddingMode mode) {
  if (mode == PaddingMode::kEdge) return std::clamp<int64_t>(i, 0, size - 1);
  const int64_t shared = mode == PaddingMode::kReflect ? 0 : 1;
  if (i < 0) return -i - shared;
  return i < size ? i : 2 * size - 2 + shared - i;
}

torch::Tensor padded_range(int64_t begin, int64_t count, int64_t size, PaddingMode mode) {
  std::vector<int64_t> from(static_cast<std::size_t>(count));
  for (int64_t i = 0; i < count; ++i) from[static_cast<std::size_t>(i)] = source_of(begin + i, size, mode);
  return torch::tensor(from, torch::kLong);
}

}  // namespace

void images::require_crop(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width,
                          const RandomCropOptions& options) {
  const int64_t p = options.padding;
  const int64_t smaller = std::min(picture_height, picture_width);
  const int64_t most = options.padding_mode == PaddingMode::kReflect ? smaller - 1 : smaller;
  const bool mirrors = options.padding_mode == PaddingMode::kReflect || options.padding_mode == PaddingMode::kSymmetric;
  if (p < 0 || (mirrors && p > most)) {
    fail<InvalidArgument>("[image] random_crop: padding is ", p, ", wanted 0 ", mirrors ? "to " : "or more",
                          mirrors ? std::to_string(most) : "");
  }
  if (height < 1 || width < 1 || picture_height + 2 * p < height || picture_width + 2 * p < width) {
    fail<InvalidArgument>("[image] random_crop: ", height, " x ", width, " of an image of ", picture_height + 2 * p,
                          " x ", picture_width + 2 * p);
  }
}

images::CropPlace images::draw_crop(int64_t picture_height, int64_t picture_width, int64_t height, int64_t width,
                                    const at::Generator& generator, const RandomCropOptions& options) {
  const int64_t top = up_to(picture_height + 2 * options.padding - height, generator);
  return {.top = top, .left = up_to(picture_width + 2 * options.padding - width, generator)};
}

torch::Tensor random_crop(const torch::Tensor& image, int64_t height, int64_t width, at::Generator generator,
                          const RandomCropOptions& options) {
  images::require_image("random_crop", image);
  images::require_crop(image.size(1), image.size(2), height, width, options);
  const int64_t p = options.padding;
  const auto [top, left] = images::draw_crop(image.size(1), image.size(2), height, width, generator, options);
  if (p > 0 && options.padding_mode != PaddingMode::kConstant) {
    const torch::Tensor rows = padded_range(top - p, height, image.size(1), options.padding_mode);
    const torch::Tensor columns = padded_range(left - p, width, image.size(2), options.padding_mode);
    return image.index_select(1, rows).index_select(2, columns);
  }
  return part(p > 0 ? at::constant_pad_nd(image, {p, p, p, p}) : image, {top, left, height, width});
}

torch::Tensor random_resized_crop(const torch::Tensor& image, int64_t height, int64_t width, at::Generator generator,
                                  const RandomResizedCropOptions& options) {
  images::require_image("random_resized_crop", image);
  const bool areas = options.min_area > 0.0 && options.min_area <= options.max_area && options.max_area <= 1.0;
  if (!areas || !(options.min_ratio > 0.0 && options.min_ratio <= options.max_ratio)) {
    fail<InvalidArgument>("[image] random_resized_crop: areas from ", options.min_area, " to ", options.max_area,
                          " and ratios from ", options.min_ratio, " to ", options.max_ratio,
                          ", wanted areas in (0, 1], ratios above 0, the lower one first");
  }
  return resize_image(part(image, random_box(image.size(1), image.size(2), generator, options)), height, width,
                      options.resize);
}

namespace {

double factor_around_one(double reach, const at::Generator& generator) {
  return uniform(std::max(0.0, 1.0 - reach), 1.0 + reach, generator);
}

torch::Tensor soft_labels(const torch::Tensor& y, int64_t examples, int64_t num_classes) {
  const bool mixed = y.defined() && y.dim() == 2 && y.is_floating_point() && y.size(1) == num_classes;
  if (mixed && y.size(0) == examples) return y.to(torch::kFloat);
  if (!y.defined() || y.dim() != 1 || y.size(0) != examples || y.scalar_type() != torch::kLong) {
    fail<InvalidArgument>("[image] mixing: y must be int64 [", examples, "] or float [", examples, ", ", num_classes,
                          "], got ", y.defined() ? c10::str(y.scalar_type(), y.sizes()) : std::string("nothing"));
  }
  if (examples > 0 && (y.min().item<int64_t>() < 0 || y.max().item<int64_t>() >= num_classes)) {
    fail<InvalidArgument>("[image] mixing: a label is ", y.max().item<int64_t>(), ", there are ", num_classes,
                          " classes");
  }
  return at::zeros({examples, num_classes}, at::TensorOptions(torch::kFloat)).scatter_(1, y.unsqueeze(1), 1.0);
}

double beta(double alpha, const at::Generator& generator) {
  if (!(alpha > 0.0)) fail<InvalidArgument>("[image] mixing: alpha is ", alpha, ", wanted more than 0");
  const torch::Tensor gammas = at::_standard_gamma(at::full({2}, alpha, at::TensorOptions(torch::kDouble)), generator);
  const auto first = gammas[0].item<double>();
  const auto sum = gammas.sum().item<double>();
  return sum > 0.0 ? first / sum : 0.5;
}

void require_batch(const Example& batch, int64_t least_dimensions) {
  if (batch.x.defined() && batch.x.dim() >= least_dimensions && batch.x.is_floating_point()) return;
  fail<InvalidArgument>("[image] mixing: x must be a floating-point batch of ", least_dimensions,
                        " dimensions or more, got ",
                        batch.x.defined() ? c10::str(batch.x.scalar_type(), batch.x.sizes()) : std::string("nothing"));
}

}  // namespace

torch::Tensor color_jitter(const torch::Tensor& image, at::Generator generator, const ColorJitterOptions& options) {
  images::require_image("color_jitter", image);
  if (image.scalar_type() != torch::kByte || (image.size(0) != 1 && image.size(0) != 3)) {
    fail<InvalidArgument>("[image] color_jitter: wanted uint8 of 1 or 3 channels, got ", image.scalar_type(),
                          image.sizes());
  }
  for (const double reach : {options.brightness, options.contrast, options.saturation, options.hue}) {
    if (!(reach >= 0.0)) fail<InvalidArgument>("[image] color_jitter: a reach is ", reach, ", wanted 0 or more");
  }
  if (options.hue > 0.5) fail<InvalidArgument>("[image] color_jitter: hue is ", options.hue, ", wanted at most 0.5");
  torch::Tensor result = image;
  const torch::Tensor order = at::randperm(4, generator, at::TensorOptions(torch::kLong));
  for (int64_t i = 0; i < 4; ++i) {
    switch (order[i].item<int64_t>()) {
      case 0:
        if (options.brightness > 0.0) {
          result = images::adjust_brightness(result, factor_around_one(options.brightness, generator));
        }
        break;
      case 1:
        if (options.contrast > 0.0) {
          result = images::adjust_contrast(result, factor_around_one(options.contrast, generator));
        }
        break;
      case 2:
        if (options.saturation > 0.0) {
          result = images::adjust_saturation(result, factor_around_one(options.saturation, generator));
        }
        break;
      default:
        if (options.hue > 0.0) result = images::adjust_hue(result, uniform(-options.hue, options.hue, generator));
    }
  }
  return result;
}

Example mixup(Example batch, int64_t num_classes, at::Generator generator, double alpha) {
  require_batch(batch, 2);
  const int64_t examples = batch.x.size(0);
  const double share = beta(alpha, generator);
  const torch::Tensor order = at::randperm(examples, generator, at::TensorOptions(torch::kLong));
  const torch::Tensor labels = soft_labels(batch.y, examples, num_classes);
  batch.x = batch.x * share + batch.x.index_select(0, order) * (1.0 - share);
  batch.y = labels * share + labels.index_select(0, order) * (1.0 - share);
  return batch;
}

Example cutmix(Example batch, int64_t num_classes, at::Generator generator, double alpha) {
  require_batch(batch, 4);
  const int64_t examples = batch.x.size(0);
  const int64_t height = batch.x.size(2);
  const int64_t width = batch.x.size(3);
  const double side = std::sqrt(1.0 - beta(alpha, generator));
  const torch::Tensor order = at::randperm(examples, generator, at::TensorOptions(torch::kLong));
  const auto cut = [&](int64_t length) {  // first and one after last, about a place of chance
    const int64_t half = static_cast<int64_t>(side * static_cast<double>(length)) / 2;
    const int64_t middle = up_to(length - 1, generator);
    return std::pair(std::max<int64_t>(0, middle - half), std::min(length, middle + half));
  };
  const auto [top, bottom] = cut(height);
  const auto [left, right] = cut(width);
  const torch::Tensor labels = soft_labels(batch.y, examples, num_classes);
  const torch::Tensor before = batch.x;
  batch.x = before.clone();
  batch.x.slice(2, top, bottom)
      .slice(3, left, right)
      .copy_(before.slice(2, top, bottom).slice(3, left, right).index_select(0, order));
  const double share = static_cast<double>((bottom - top) * (right - left)) / static_cast<double>(height * width);
  batch.y = labels * (1.0 - share) + labels.index_select(0, order) * share;
  return batch;
}

torch::Tensor normalize(const torch::Tensor& image, const std::vector<double>& mean,
                        const std::vector<double>& deviation) {
  images::require_image("normalize", image);
  const auto channels = static_cast<std::size_t>(image.size(0));
  if (mean.size() != channels || deviation.size() != channels) {
    fail<InvalidArgument>("[image] normalize: ", mean.size(), " means and ", deviation.size(), " deviations for ",
                          channels, " channels");
  }
  const double unit = image.scalar_type() == torch::kByte ? 255.0 : 1.0;
  torch::Tensor result = at::empty(image.sizes(), at::TensorOptions(torch::kFloat));
  if (channels == 3 && image.scalar_type() == torch::kByte && image.permute({1, 2, 0}).is_contiguous()) {
    std::array<float, 3> factors{};
    std::array<float, 3> offsets{};
    for (std::size_t c = 0; c < 3; ++c) {
      factors[c] = static_cast<float>(1.0 / (unit * deviation[c]));
      offsets[c] = static_cast<float>(mean[c] / deviation[c]);
    }
    kernels::pixel_table().to_planes(image.data_ptr<uint8_t>(), result.data_ptr<float>(), image.size(1) * image.size(2),
                                     factors.data(), offsets.data());
    return result;
  }
  for (std::size_t c = 0; c < channels; ++c) {
    // One pass: x / unit / deviation - mean / deviation.
    torch::Tensor channel = result.select(0, static_cast<int64_t>(c));
    channel.copy_(image.select(0, static_cast<int64_t>(c)));
    channel.mul_(1.0 / (unit * deviation[c])).sub_(mean[c] / deviation[c]);
  }
  return result;
}

}  // namespace cohort
