#include <ATen/Functions.h>

#include <cmath>

#include "cohort/augment.h"
#include "data/images/adjust.h"
#include "data/images/require.h"

namespace cohort {

namespace {

constexpr double kDegree = 3.14159265358979323846 / 180.0;
constexpr std::array kOperations = {"Identity",  "ShearX",     "ShearY",       "TranslateX", "TranslateY",
                                    "Rotate",    "Brightness", "Color",        "Contrast",   "Sharpness",
                                    "Posterize", "Solarize",   "AutoContrast", "Equalize"};

// The middle of the image stays where it is; a shear keeps its first column and row, as torchvision's.
torch::Tensor shear(const torch::Tensor& image, double along_x, double along_y) {
  const double half_width = 0.5 * static_cast<double>(image.size(2));
  const double half_height = 0.5 * static_cast<double>(image.size(1));
  return images::transform(image, {1.0, along_x, along_x * half_height, along_y, 1.0, along_y * half_width});
}

}  // namespace

torch::Tensor apply_augmentation(const torch::Tensor& image, std::string_view operation, double magnitude) {
  images::require_image("apply_augmentation", image);
  if (image.scalar_type() != torch::kByte || (image.size(0) != 1 && image.size(0) != 3)) {
    fail<InvalidArgument>("[image] rand_augment: wanted uint8 of 1 or 3 channels, got ", image.scalar_type(),
                          image.sizes());
  }
  if (operation == "Identity") return image;
  if (operation == "ShearX") return shear(image, magnitude, 0.0);
  if (operation == "ShearY") return shear(image, 0.0, magnitude);
  if (operation == "TranslateX") return images::transform(image, {1.0, 0.0, -std::trunc(magnitude), 0.0, 1.0, 0.0});
  if (operation == "TranslateY") return images::transform(image, {1.0, 0.0, 0.0, 0.0, 1.0, -std::trunc(magnitude)});
  if (operation == "Rotate") {
    const double angle = -magnitude * kDegree;
    return images::transform(image, {std::cos(angle), std::sin(angle), 0.0, -std::sin(angle), std::cos(angle), 0.0});
  }
  if (operation == "Brightness") return images::adjust_brightness(image, 1.0 + magnitude);
  if (operation == "Color") return images::adjust_saturation(image, 1.0 + magnitude);
  if (operation == "Contrast") return images::adjust_contrast(image, 1.0 + magnitude);
  if (operation == "Sharpness") return images::adjust_sharpness(image, 1.0 + magnitude);
  if (operation == "Posterize") return images::posterize(image, static_cast<int>(magnitude));
  if (operation == "Solarize") return images::solarize(image, magnitude);
  if (operation == "AutoContrast") return images::autocontrast(image);
  if (operation == "Equalize") return images::equalize(image);
  fail<NotFound>("[image] rand_augment: there is no operation \"", operation, "\"");
}

torch::Tensor rand_augment(const torch::Tensor& image, at::Generator generator, const RandAugmentOptions& options) {
  images::require_image("rand_augment", image);
  if (options.num_ops < 0 || options.num_magnitude_bins < 2 || options.magnitude < 0 ||
      options.magnitude >= options.num_magnitude_bins) {
    fail<InvalidArgument>("[image] rand_augment: num_ops ", options.num_ops, ", magnitude ", options.magnitude, " of ",
                          options.num_magnitude_bins, ", wanted 0 or more, and a magnitude below the number of bins");
  }
  const double part = static_cast<double>(options.magnitude) / static_cast<double>(options.num_magnitude_bins - 1);
  torch::Tensor result = image;
  for (int64_t i = 0; i < options.num_ops; ++i) {
    const torch::Tensor drawn =
        at::randint(0, static_cast<int64_t>(kOperations.size()) * 2, {}, generator, at::TensorOptions(torch::kLong));
    const auto number = drawn.item<int64_t>();
    const std::string_view operation = kOperations[static_cast<std::size_t>(number / 2)];
    const double sign = number % 2 == 0 ? 1.0 : -1.0;
    double magnitude = 0.9 * part * sign;
    if (operation.starts_with("Shear")) magnitude = 0.3 * part * sign;
    if (operation == "TranslateX") magnitude = 150.0 / 331.0 * static_cast<double>(result.size(2)) * part * sign;
    if (operation == "TranslateY") magnitude = 150.0 / 331.0 * static_cast<double>(result.size(1)) * part * sign;
    if (operation == "Rotate") magnitude = 30.0 * part * sign;
    if (operation == "Posterize") magnitude = 8.0 - std::nearbyint(4.0 * part);
    if (operation == "Solarize") magnitude = 255.0 * (1.0 - part);
    result = apply_augmentation(result, operation, magnitude);
  }
  return result;
}

}  // namespace cohort
