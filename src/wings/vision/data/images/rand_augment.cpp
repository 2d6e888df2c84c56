#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>

#include "cohort/data/augment.h"
#include "wings/vision/data/images/adjust.h"
#include "wings/vision/data/images/require.h"

namespace cohort {

namespace {

constexpr double kDegree = 3.14159265358979323846 / 180.0;
constexpr std::array<std::string_view, 14> kOperations = {
    "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
    "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};

// The middle of the image stays where it is; a shear keeps its first column and row, as torchvision's.
torch::Tensor shear(const torch::Tensor& image, double along_x, double along_y) {
  const double half_width = 0.5 * static_cast<double>(image.size(2));
  const double half_height = 0.5 * static_cast<double>(image.size(1));
  return images::transform(image, {1.0, along_x, along_x * half_height, along_y, 1.0, along_y * half_width});
}

// Those that are drawn.
std::vector<std::string_view> without(const std::vector<std::string>& excluded) {
  for (const std::string& name : excluded) {
    if (std::find(kOperations.begin(), kOperations.end(), name) != kOperations.end()) continue;
    fail<NotFound>("[image] rand_augment: there is no operation \"", name, "\" to exclude");
  }
  std::vector<std::string_view> left;
  for (const std::string_view operation : kOperations) {
    if (std::find(excluded.begin(), excluded.end(), operation) == excluded.end()) left.push_back(operation);
  }
  if (left.empty()) fail<InvalidArgument>("[image] rand_augment: every operation is excluded");
  return left;
}

// Returns the number that apply_augmentation() takes, for a part from 0 to 1 of the strength that there is.
double magnitude_of(std::string_view operation, double part, double sign, const torch::Tensor& image,
                    const RandAugmentOptions& options) {
  const auto translation = [&](int64_t side) {
    return options.translation.value_or(150.0 / 331.0 * static_cast<double>(side)) * part * sign;
  };
  if (operation.starts_with("Shear")) return 0.3 * part * sign;
  if (operation == "TranslateX") return translation(image.size(2));
  if (operation == "TranslateY") return translation(image.size(1));
  if (operation == "Rotate") return 30.0 * part * sign;
  if (operation == "Posterize") return 8.0 - std::nearbyint(4.0 * part);
  if (operation == "Solarize") return 255.0 * (1.0 - part);
  return 0.9 * part * sign;
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
  const std::vector<std::string_view> operations = without(options.exclude);
  torch::Tensor result = image;
  for (int64_t i = 0; i < options.num_ops; ++i) {
    const torch::Tensor drawn =
        at::randint(0, static_cast<int64_t>(operations.size()) * 2, {}, generator, at::TensorOptions(torch::kLong));
    const auto number = drawn.item<int64_t>();
    const std::string_view operation = operations[static_cast<std::size_t>(number / 2)];
    const double sign = number % 2 == 0 ? 1.0 : -1.0;
    result = apply_augmentation(result, operation, magnitude_of(operation, part, sign, result, options));
  }
  return result;
}

}  // namespace cohort
