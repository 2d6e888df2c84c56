#include "wings/vision/data/images/adjust.h"

#include <ATen/Functions.h>

namespace cohort::images {

torch::Tensor blend(const torch::Tensor& image, const torch::Tensor& other, double factor) {
  return (image.to(torch::kFloat) * factor + other.to(torch::kFloat) * (1.0 - factor))
      .clamp_(0.0, 255.0)
      .to(torch::kByte);
}

torch::Tensor grey(const torch::Tensor& image) {
  if (image.size(0) == 1) return image;
  const torch::Tensor x = image.to(torch::kFloat);
  return (x.select(0, 0) * 0.2989 + x.select(0, 1) * 0.587 + x.select(0, 2) * 0.114).to(torch::kByte).unsqueeze(0);
}

torch::Tensor adjust_brightness(const torch::Tensor& image, double factor) {
  return blend(image, at::zeros_like(image), factor);
}

torch::Tensor adjust_contrast(const torch::Tensor& image, double factor) {
  return blend(image, grey(image).to(torch::kFloat).mean(), factor);
}

torch::Tensor adjust_saturation(const torch::Tensor& image, double factor) {
  return image.size(0) == 1 ? image : blend(image, grey(image), factor);
}

torch::Tensor adjust_sharpness(const torch::Tensor& image, double factor) {
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  if (height <= 2 || width <= 2) return image;
  const int64_t channels = image.size(0);
  torch::Tensor kernel = at::ones({3, 3});
  kernel[1][1] = 5.0;
  kernel = (kernel / kernel.sum()).expand({channels, 1, 3, 3});
  const torch::Tensor inner = at::conv2d(image.to(torch::kFloat).unsqueeze(0), kernel, {}, at::IntArrayRef{1, 1},
                                         at::IntArrayRef{0, 0}, at::IntArrayRef{1, 1}, channels)
                                  .squeeze(0)
                                  .round_();
  torch::Tensor blurred = image.clone();
  blurred.slice(1, 1, height - 1).slice(2, 1, width - 1).copy_(inner);
  return blend(image, blurred, factor);
}

torch::Tensor adjust_hue(const torch::Tensor& image, double by) {
  if (image.size(0) == 1) return image;
  const torch::Tensor rgb = image.to(torch::kFloat) / 255.0;
  // The colours become hue, saturation and value.
  const torch::Tensor most = std::get<0>(rgb.max(0));
  const torch::Tensor least = std::get<0>(rgb.min(0));
  const torch::Tensor range = most - least;
  const torch::Tensor flat = range == 0;
  const torch::Tensor saturation = range / at::where(flat, at::ones({}), most);
  const torch::Tensor divisor = at::where(flat, at::ones({}), range);
  const torch::Tensor r = (most - rgb[0]) / divisor;
  const torch::Tensor g = (most - rgb[1]) / divisor;
  const torch::Tensor b = (most - rgb[2]) / divisor;
  const torch::Tensor red = most == rgb[0];
  const torch::Tensor green = (most == rgb[1]) & ~red;
  const torch::Tensor blue = (most != rgb[1]) & ~red;
  torch::Tensor hue = red * (b - g) + green * (2.0 + r - b) + blue * (4.0 + g - r);
  hue = at::fmod(hue / 6.0 + 1.0, 1.0);
  // The hue is turned, and the colours come back.
  hue = at::remainder(hue + by, 1.0);
  const torch::Tensor sector = at::floor(hue * 6.0);
  const torch::Tensor f = hue * 6.0 - sector;
  const torch::Tensor p = (most * (1.0 - saturation)).clamp(0.0, 1.0);
  const torch::Tensor q = (most * (1.0 - saturation * f)).clamp(0.0, 1.0);
  const torch::Tensor t = (most * (1.0 - saturation * (1.0 - f))).clamp(0.0, 1.0);
  const torch::Tensor i = at::remainder(sector, 6.0).to(torch::kLong).unsqueeze(0);
  const auto choose = [&](const std::array<torch::Tensor, 6>& of) {
    return at::stack({of[0], of[1], of[2], of[3], of[4], of[5]}).gather(0, i).squeeze(0);
  };
  const torch::Tensor& v = most;
  const torch::Tensor turned =
      at::stack({choose({v, q, p, p, t, v}), choose({t, v, v, q, p, p}), choose({p, p, t, v, v, q})});
  return turned.mul(255.999).to(torch::kByte);
}

torch::Tensor posterize(const torch::Tensor& image, int bits) {
  return image.bitwise_and(static_cast<uint8_t>(0xff << (8 - bits)));
}

torch::Tensor solarize(const torch::Tensor& image, double threshold) {
  return at::where(image >= threshold, 255 - image, image);
}

torch::Tensor autocontrast(const torch::Tensor& image) {
  const torch::Tensor x = image.to(torch::kFloat);
  torch::Tensor least = x.amin({1, 2}, /*keepdim=*/true);
  torch::Tensor scale = 255.0 / (x.amax({1, 2}, /*keepdim=*/true) - least);
  const torch::Tensor flat = ~at::isfinite(scale);
  least = least.masked_fill(flat, 0.0);
  scale = scale.masked_fill(flat, 1.0);
  return ((x - least) * scale).clamp_(0.0, 255.0).to(torch::kByte);
}

torch::Tensor equalize(const torch::Tensor& image) {
  std::vector<torch::Tensor> channels;
  for (const torch::Tensor& channel : image.unbind(0)) {
    const torch::Tensor counts = at::bincount(channel.flatten().to(torch::kLong), {}, 256);
    const torch::Tensor some = counts.masked_select(counts != 0);
    const int64_t step = some.slice(0, 0, some.size(0) - 1).sum().item<int64_t>() / 255;
    if (step == 0) {
      channels.push_back(channel);
      continue;
    }
    const torch::Tensor table = (counts.cumsum(0) + step / 2).floor_divide(step);
    const torch::Tensor shifted = at::constant_pad_nd(table, {1, 0}).slice(0, 0, 256).clamp(0, 255).to(torch::kByte);
    channels.push_back(shifted.index_select(0, channel.flatten().to(torch::kLong)).view_as(channel));
  }
  return at::stack(channels);
}

torch::Tensor transform(const torch::Tensor& image, const std::array<double, 6>& inverse) {
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  const auto h = static_cast<double>(height);
  const auto w = static_cast<double>(width);
  const torch::Tensor x = at::linspace(0.5 - w * 0.5, w * 0.5 - 0.5, width).expand({height, width});
  const torch::Tensor y = at::linspace(0.5 - h * 0.5, h * 0.5 - 0.5, height).unsqueeze(1).expand({height, width});
  const torch::Tensor places = at::stack({x, y, at::ones_like(x)}, 2).view({1, height * width, 3});
  const torch::Tensor matrix =
      at::tensor(at::ArrayRef<double>(inverse.data(), inverse.size()), at::TensorOptions(torch::kFloat));
  const torch::Tensor theta =
      matrix.view({1, 2, 3}).transpose(1, 2) / at::tensor({0.5F * static_cast<float>(w), 0.5F * static_cast<float>(h)});
  const torch::Tensor grid = places.bmm(theta).view({1, height, width, 2});
  constexpr int64_t kNearest = 1;
  constexpr int64_t kZeros = 0;
  return at::grid_sampler(image.to(torch::kFloat).unsqueeze(0), grid, kNearest, kZeros, /*align_corners=*/false)
      .squeeze(0)
      .to(torch::kByte);
}

}  // namespace cohort::images
