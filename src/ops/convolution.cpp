#include "ops/convolution.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <array>
#include <vector>

namespace cohort {

int64_t WindowShape::output(int64_t input) const {
  if (input < 0) return -1;
  if (padding != Pads::kNone) return (input + stride - 1) / stride;
  return input < reach() ? 0 : (input - reach()) / stride + 1;
}

std::pair<int64_t, int64_t> WindowShape::pads(int64_t input) const {
  if (padding == Pads::kNone) return {0, 0};
  if (padding == Pads::kBefore) return {reach() - 1, 0};
  const int64_t total = std::max<int64_t>((output(input) - 1) * stride + reach() - input, 0);
  return {total / 2, total - total / 2};
}

bool is_safe_in_half(const torch::Tensor& x, const Window2& window, int64_t groups) {
  const auto& [height, width] = window;
  return !is_unsafe_in_half({.image = x.sizes().slice(2),
                             .kernel = {height.size, width.size},
                             .stride = {height.stride, width.stride},
                             .dilation = {height.dilation, width.dilation}},
                            groups);
}

torch::Tensor convolve_images(const torch::Tensor& input, const torch::Tensor& weight, const torch::Tensor& bias,
                              const Window2& window, int64_t groups) {
  torch::Tensor x = input;
  const auto [top, bottom] = window.height.pads(x.size(2));
  const auto [left, right] = window.width.pads(x.size(3));
  std::vector<int64_t> padding = {top, left};
  if (top != bottom || left != right) {
    x = at::constant_pad_nd(x, {left, right, top, bottom});
    padding = {0, 0};
  }
  const std::array<int64_t, 2> stride = {window.height.stride, window.width.stride};
  const std::array<int64_t, 2> dilation = {window.height.dilation, window.width.dilation};
  // LibTorch takes an empty batch another way, with contiguous weights only.
  return convolve_safely(is_safe_in_half(x, window, groups), x, x.numel() == 0 ? weight.contiguous() : weight, bias,
                         [&](const torch::Tensor& images, const torch::Tensor& kernel, const torch::Tensor& added) {
                           return at::conv2d(images, kernel, added, stride, padding, dilation, groups);
                         });
}

}  // namespace cohort
