// Changes of an image's values and of its geometry, with torchvision's results (0.14, transforms/functional_tensor.py).
// All take and give uint8 [1 or 3, height, width].
#pragma once

#include <torch/types.h>

#include <array>

namespace cohort::images {

// Returns factor * image + (1 - factor) * other, cut off at 0 and 255.
torch::Tensor blend(const torch::Tensor& image, const torch::Tensor& other, double factor);
torch::Tensor grey(const torch::Tensor& image);  // uint8 [1, height, width]

torch::Tensor adjust_brightness(const torch::Tensor& image, double factor);
torch::Tensor adjust_contrast(const torch::Tensor& image, double factor);
torch::Tensor adjust_saturation(const torch::Tensor& image, double factor);
torch::Tensor adjust_sharpness(const torch::Tensor& image, double factor);
// Turns the hue by a part of the circle of colours, -0.5 to 0.5.
torch::Tensor adjust_hue(const torch::Tensor& image, double by);
torch::Tensor posterize(const torch::Tensor& image, int bits);
torch::Tensor solarize(const torch::Tensor& image, double threshold);
torch::Tensor autocontrast(const torch::Tensor& image);
torch::Tensor equalize(const torch::Tensor& image);

// Output pixels are taken from where the matrix [a b c; d e f] puts them, about the middle of the image; the nearest
// one, black outside.
torch::Tensor transform(const torch::Tensor& image, const std::array<double, 6>& inverse);

}  // namespace cohort::images
