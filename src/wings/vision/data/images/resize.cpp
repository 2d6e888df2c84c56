// Resizing as Pillow does it: two passes, first along the rows and then along the columns, each output a weighted sum
// of inputs, the weights rounded to 22 bits behind the point and the sums to bytes. The kernels take pointers into
// CPU tensors.
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/fail.h"
#include "cohort/data/image.h"
#include "wings/vision/data/images/kernels/pixel_table.h"
#include "wings/vision/data/images/require.h"

namespace cohort {

namespace {

double bilinear(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

// Keys' kernel with a = -0.5.
double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

// The inputs that each output is made of, and how much of each.
struct ResizeWeights {
  int64_t most = 0;             // inputs of an output
  std::vector<int64_t> first;   // [output]
  std::vector<int64_t> count;   // [output]
  std::vector<int32_t> values;  // [output][most]

  kernels::Weighting view() const {
    return {.first = first.data(), .count = count.data(), .weights = values.data(), .most = most};
  }
};

ResizeWeights weights_for(int64_t in, int64_t out, const ResizeOptions& options) {
  const bool cubic = options.interpolation == Interpolation::kBicubic;
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = options.antialias ? std::max(scale, 1.0) : 1.0;
  const double support = (cubic ? 2.0 : 1.0) * stretch;
  ResizeWeights weights;
  weights.most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  weights.values.assign(static_cast<std::size_t>(out * weights.most), 0);
  std::vector<double> exact(static_cast<std::size_t>(weights.most));
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const double begin = center - support + 0.5;
    const double end = center + support + 0.5;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(begin));
    const int64_t last = std::min<int64_t>(in, static_cast<int64_t>(end));
    double sum = 0.0;
    for (int64_t x = first; x < last; ++x) {
      const double at = (static_cast<double>(x) - center + 0.5) / stretch;
      const double weight = cubic ? bicubic(at) : bilinear(at);
      exact[static_cast<std::size_t>(x - first)] = weight;
      sum += weight;
    }
    for (int64_t x = 0; x < last - first; ++x) {
      const double weight = exact[static_cast<std::size_t>(x)] / sum * (1 << kernels::kWeightBits);
      weights.values[static_cast<std::size_t>(i * weights.most + x)] =
          static_cast<int32_t>(weight < 0.0 ? weight - 0.5 : weight + 0.5);
    }
    weights.first.push_back(first);
    weights.count.push_back(last - first);
  }
  return weights;
}

}  // namespace

torch::Tensor resize_image(const torch::Tensor& image, int64_t height, int64_t width, const ResizeOptions& options) {
  images::require_image("resize_image", image);
  const int64_t channels = image.size(0);
  if (image.scalar_type() != torch::kByte || (channels != 1 && channels != 3)) {
    fail<InvalidArgument>("[image] resize_image: wanted uint8 of 1 or 3 channels, got ", image.scalar_type(),
                          image.sizes());
  }
  if (height < 1 || width < 1) {
    fail<InvalidArgument>("[image] resize_image: to ", height, " x ", width, ", wanted 1 or more");
  }
  torch::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  const int64_t old_height = pixels.size(0);
  const int64_t old_width = pixels.size(1);
  if (old_width != width) {
    const torch::Tensor next = at::empty({old_height, width, channels}, torch::kByte);
    const auto scratch = std::make_unique_for_overwrite<uint8_t[]>(
        static_cast<std::size_t>((old_width + width) * channels * kernels::kPixelRows));
    kernels::pixel_table().resize_rows(pixels.data_ptr<uint8_t>(), next.data_ptr<uint8_t>(), old_height, old_width,
                                       width, channels, weights_for(old_width, width, options).view(), scratch.get());
    pixels = next;
  }
  if (old_height != height) {
    const torch::Tensor next = at::empty({height, width, channels}, torch::kByte);
    kernels::pixel_table().resize_columns(pixels.data_ptr<uint8_t>(), next.data_ptr<uint8_t>(), height,
                                          width * channels, weights_for(old_height, height, options).view());
    pixels = next;
  }
  return pixels.permute({2, 0, 1});
}

torch::Tensor center_crop(const torch::Tensor& image, int64_t height, int64_t width) {
  images::require_image("center_crop", image);
  if (height < 1 || width < 1 || image.size(1) < height || image.size(2) < width) {
    fail<InvalidArgument>("[image] center_crop: ", height, " x ", width, " of an image of ", image.size(1), " x ",
                          image.size(2));
  }
  // Halves go to the even side, as Python rounds and so torchvision crops.
  const auto half = [](int64_t rest) { return static_cast<int64_t>(std::nearbyint(static_cast<double>(rest) / 2.0)); };
  return image.narrow(1, half(image.size(1) - height), height).narrow(2, half(image.size(2) - width), width);
}

}  // namespace cohort
