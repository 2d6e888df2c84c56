#include "cohort/augment.h"

#include <ATen/Functions.h>

#include <cmath>
#include <optional>

#include "base/fail.h"
#include "data/images/require.h"

namespace cohort {

namespace {

double uniform(double low, double high, const at::Generator& generator) {
  return low + (high - low) * at::rand({}, generator, at::TensorOptions(torch::kDouble)).item<double>();
}

// Uniform in [0, bound].
int64_t up_to(int64_t bound, const at::Generator& generator) {
  return at::randint(0, bound + 1, {}, generator, at::TensorOptions(torch::kLong)).item<int64_t>();
}

struct Box {
  int64_t top, left, height, width;
};

torch::Tensor part(const torch::Tensor& image, const Box& box) {
  return image.narrow(1, box.top, box.height).narrow(2, box.left, box.width);
}

Box random_box(int64_t height, int64_t width, const at::Generator& generator, const RandomResizedCropOptions& options) {
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
  return uniform(0.0, 1.0, generator) < probability ? image.flip({2}) : image;
}

torch::Tensor random_crop(const torch::Tensor& image, int64_t height, int64_t width, at::Generator generator,
                          const RandomCropOptions& options) {
  images::require_image("random_crop", image);
  if (options.padding < 0) fail<InvalidArgument>("[image] random_crop: padding is ", options.padding);
  const int64_t p = options.padding;
  const torch::Tensor padded = p > 0 ? at::constant_pad_nd(image, {p, p, p, p}) : image;
  if (height < 1 || width < 1 || padded.size(1) < height || padded.size(2) < width) {
    fail<InvalidArgument>("[image] random_crop: ", height, " x ", width, " of an image of ", padded.size(1), " x ",
                          padded.size(2));
  }
  const int64_t top = up_to(padded.size(1) - height, generator);
  return part(padded, {top, up_to(padded.size(2) - width, generator), height, width});
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
  for (std::size_t c = 0; c < channels; ++c) {
    // One pass: x / unit / deviation - mean / deviation.
    torch::Tensor channel = result.select(0, static_cast<int64_t>(c));
    channel.copy_(image.select(0, static_cast<int64_t>(c)));
    channel.mul_(1.0 / (unit * deviation[c])).sub_(mean[c] / deviation[c]);
  }
  return result;
}

}  // namespace cohort
