// The code that all convolutions share: checks of their windows, the layout of weights, and the convolution of images
// itself.
#include <ATen/Functions.h>

#include <array>

#include "cohort/device.h"
#include "ops/half_convolution.h"
#include "train/layers/support.h"

namespace cohort {

// LibTorch's CPU kernels around convolutions (pooling above all) are faster with the channels last, a layout that
// outputs take over from the weights. Strides that say so even of a single channel spare the way back and forth. Both
// layouts of pointwise kernels are the same.
torch::Tensor fast_layout(const torch::Tensor& weight) {
  const auto size = weight.sizes();
  const bool helps = current_torch_device().is_cpu() && weight.scalar_type() == torch::kFloat;
  if (!helps || size[2] * size[3] == 1) return weight;
  const std::vector<int64_t> strides = {size[1] * size[2] * size[3], 1, size[1] * size[3], size[1]};
  return torch::empty_strided(size, strides, weight.options()).copy_(weight);
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

torch::Tensor ConvolutionModule::forward(const torch::Tensor& x) {
  const bool relu = activation().is_relu();
  const torch::Tensor y = fused(x, {.relu = relu});
  return y.defined() && relu ? y : activation().overwrite(y.defined() ? y : convolve(x));
}

void check_window(std::string_view type, torch::IntArrayRef kernel, torch::IntArrayRef strides,
                  torch::IntArrayRef dilation) {
  const auto check = [&](const char* name, torch::IntArrayRef sizes) {
    bool ones = true;
    std::string text;
    for (const int64_t size : sizes) {
      text += (text.empty() ? "" : " x ") + std::to_string(size);
      ones = ones && size == 1;
    }
    for (const int64_t size : sizes) {
      if (size <= 0) fail_option(type, name, " must be positive, got ", text);
    }
    return ones;
  };
  check("kernel_size", kernel);
  const bool dense = check("strides", strides);
  const bool near = check("dilation_rate", dilation);
  if (!dense && !near) fail_option(type, "strides and dilation_rate cannot both be above 1");
}

}  // namespace cohort
