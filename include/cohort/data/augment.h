// Random changes of images, for Dataset::random_map, and what comes before a network.
//
//   train.random_map([](Example example, at::Generator generator) {
//     example.x = random_horizontal_flip(random_crop(example.x, 32, 32, generator, {.padding = 4}), generator);
//     example.x = normalize(example.x, {0.491, 0.482, 0.447}, {0.247, 0.243, 0.262});
//     return example;
//   });
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cohort/data/image.h"
#include "cohort/example.h"

namespace cohort {

// Images are [channels, height, width]. The same generator state gives the same result; a generator may be used by one
// thread at a time. InvalidArgument: a shape, a size or a range that does not fit.

// Returns the image or its mirror image, a view or a copy.
torch::Tensor random_horizontal_flip(const torch::Tensor& image, at::Generator generator, double probability = 0.5);

// The values that stand outside an image (torchvision's names): zeros; its outermost pixels; its mirror image, without
// those pixels or with them.
enum class PaddingMode { kConstant, kEdge, kReflect, kSymmetric };

struct RandomCropOptions {
  int64_t padding = 0;                                // pixels on every side first
  PaddingMode padding_mode = PaddingMode::kConstant;  // the values in the padding
};
// Returns a part of this size from anywhere (torchvision's RandomCrop).
torch::Tensor random_crop(const torch::Tensor& image, int64_t height, int64_t width, at::Generator generator,
                          const RandomCropOptions& options = {});

struct RandomResizedCropOptions {
  double min_area = 0.08;        // the least part of the image's area
  double max_area = 1.0;         // largest part of the image's area
  double min_ratio = 3.0 / 4.0;  // the smallest ratio of width to height
  double max_ratio = 4.0 / 3.0;  // largest ratio of width to height
  ResizeOptions resize = {};     // the options of the resizing
};
// Returns a part of random area and shape, resized (Szegedy et al., "Going Deeper with Convolutions", 2015;
// torchvision's RandomResizedCrop). uint8 of 1 or 3 channels.
torch::Tensor random_resized_crop(const torch::Tensor& image, int64_t height, int64_t width, at::Generator generator,
                                  const RandomResizedCropOptions& options = {});

struct ColorJitterOptions {
  // A factor from 1 - this (at least 0) to 1 + this, each its own; 0: left as it is.
  double brightness = 0.0;
  double contrast = 0.0;    // a factor for the distance from the mean grey, drawn as for brightness
  double saturation = 0.0;  // 3 channels: a factor for the distance from the grey image, drawn as for brightness
  double hue = 0.0;         // 3 channels: turned by -this to this of the circle of colours, at most 0.5
};
// Applies the four in an order of chance (torchvision's ColorJitter). uint8 of 1 or 3 channels, and so the result.
torch::Tensor color_jitter(const torch::Tensor& image, at::Generator generator, const ColorJitterOptions& options);

struct RandAugmentOptions {
  int64_t num_ops = 2;                               // one after the other, each drawn from all
  int64_t magnitude = 9;                             // strength of the operations, from 0 to num_magnitude_bins - 1
  int64_t num_magnitude_bins = 31;                   // number of strengths
  std::vector<std::string> exclude = {};             // operations that are not drawn
  std::optional<double> translation = std::nullopt;  // pixels at the largest magnitude; unset: 150/331 of the side
};
// E. Cubuk et al., "RandAugment" (2020), with torchvision's fourteen operations. uint8 of 1 or 3 channels.
torch::Tensor rand_augment(const torch::Tensor& image, at::Generator generator, const RandAugmentOptions& options = {});
// Applies one of them: "Identity", "ShearX", "ShearY" (slopes), "TranslateX", "TranslateY" (pixels), "Rotate"
// (degrees), "Brightness", "Color", "Contrast", "Sharpness" (added to a factor of 1), "Posterize" (bits that are left),
// "Solarize" (threshold), "AutoContrast", "Equalize". NotFound: another name.
torch::Tensor apply_augmentation(const torch::Tensor& image, std::string_view operation, double magnitude);

// Batches: x [examples, ...] of a floating-point dtype, y int64 [examples] below num_classes, or already mixed. y
// becomes float32 [examples, num_classes], for CategoricalCrossentropy. Each example is mixed from two, whose shares
// are drawn from Beta(alpha, alpha); the second ones are the batch in another order.

// Mixes all of both (Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2018).
Example mixup(Example batch, int64_t num_classes, at::Generator generator, double alpha = 0.2);
// Puts a box of the second in the first; y by its area (Yun et al., "CutMix", 2019). x [examples, channels, height,
// width].
Example cutmix(Example batch, int64_t num_classes, at::Generator generator, double alpha = 1.0);

// float32, contiguous: (image - mean) / deviation by channel, where a uint8 image counts from 0 to 1.
torch::Tensor normalize(const torch::Tensor& image, const std::vector<double>& mean,
                        const std::vector<double>& deviation);

}  // namespace cohort
