// The pixels of tf.image (image_ops.json).
#include <gtest/gtest.h>

#include <map>

#include "cohort/data/tf_image.h"
#include "tests/golden/golden.h"

namespace cohort::testing::images_test {
namespace {

using Operation = std::function<torch::Tensor(const torch::Tensor&)>;
using image::ResizeMethod;

Operation resized(int64_t height, int64_t width, ResizeMethod method, bool antialias = false) {
  return [=](const torch::Tensor& x) {
    return image::resize(x, height, width, {.method = method, .antialias = antialias});
  };
}

Operation preprocessed(imagenet_utils::PreprocessMode mode) {
  return [=](const torch::Tensor& x) { return imagenet_utils::preprocess_input(x, mode); };
}

// The operations by the file's names, with the arguments of its README.
std::map<std::string, Operation> resizing() {
  return {
      {"resize_bilinear", resized(5, 7, ResizeMethod::kBilinear)},
      {"resize_bilinear_up", resized(9, 11, ResizeMethod::kBilinear)},
      {"resize_bilinear_antialias", resized(3, 2, ResizeMethod::kBilinear, true)},
      {"resize_bilinear_down", resized(3, 2, ResizeMethod::kBilinear)},
      {"resize_nearest", resized(5, 7, ResizeMethod::kNearest)},
      {"resize_bicubic", resized(5, 7, ResizeMethod::kBicubic)},
      {"resize_area", resized(3, 3, ResizeMethod::kArea)},
      {"resize_lanczos3", resized(5, 7, ResizeMethod::kLanczos3)},
      {"resize_bicubic_antialias", resized(3, 3, ResizeMethod::kBicubic, true)},
      {"resize_with_pad", [](const torch::Tensor& x) { return image::resize_with_pad(x, 5, 9); }},
      {"resize_with_crop_or_pad", [](const torch::Tensor& x) { return image::resize_with_crop_or_pad(x, 4, 9); }},
      {"central_crop", [](const torch::Tensor& x) { return image::central_crop(x, 0.5); }},
      {"flip_left_right", image::flip_left_right},
      {"flip_up_down", image::flip_up_down},
      {"rot90", [](const torch::Tensor& x) { return image::rot90(x); }},
      {"crop_and_resize",
       [](const torch::Tensor& x) {
         return image::crop_and_resize(x.to(torch::kFloat).unsqueeze(0), torch::tensor({{0.1, 0.2, 0.8, 0.9}}),
                                       torch::tensor({0}, torch::kInt), 4, 4);
       }},
  };
}

std::map<std::string, Operation> coloring() {
  return {
      {"adjust_brightness", [](const torch::Tensor& x) { return image::adjust_brightness(x, 0.2); }},
      {"adjust_contrast", [](const torch::Tensor& x) { return image::adjust_contrast(x, 1.7); }},
      {"adjust_saturation", [](const torch::Tensor& x) { return image::adjust_saturation(x, 0.4); }},
      {"adjust_hue", [](const torch::Tensor& x) { return image::adjust_hue(x, 0.1); }},
      {"adjust_gamma", [](const torch::Tensor& x) { return image::adjust_gamma(x.to(torch::kFloat) / 255.0, 0.7); }},
      {"rgb_to_grayscale", image::rgb_to_grayscale},
      {"per_image_standardization", image::per_image_standardization},
      {"convert_image_dtype", [](const torch::Tensor& x) { return image::convert_image_dtype(x, torch::kFloat); }},
      {"rgb_to_hsv", [](const torch::Tensor& x) { return image::rgb_to_hsv(x.to(torch::kFloat) / 255.0); }},
      {"caffe_preprocess", preprocessed(imagenet_utils::PreprocessMode::kCaffe)},
      {"tf_preprocess", preprocessed(imagenet_utils::PreprocessMode::kTf)},
      {"torch_preprocess", preprocessed(imagenet_utils::PreprocessMode::kTorch)},
  };
}

TEST(GoldenImages, HaveTensorFlowsPixels) {
  std::map<std::string, Operation> operations = resizing();
  operations.merge(coloring());
  check_golden("image_ops.json", [&](const nlohmann::json& golden) {
    const std::string name = golden.at("op");
    const auto found = operations.find(name);
    if (found == operations.end()) return "there is no operation " + name;
    const torch::Tensor y = found->second(golden_tensor(golden.at("input"), torch::kByte));
    const bool bytes = y.scalar_type() == torch::kByte;
    return difference(name, y, golden_tensor(golden.at("output")),
                      {.absolute = bytes ? 0.0 : 1e-5, .relative = bytes ? 0.0 : 1e-4});
  });
}

}  // namespace
}  // namespace cohort::testing::images_test
