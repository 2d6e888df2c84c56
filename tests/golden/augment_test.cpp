// The pixels of Model Garden's augmentation and preprocessing (augment_model_garden.json, augment_levels.json).
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "cohort/data/auto_augment.h"
#include "cohort/data/preprocess_ops.h"
#include "tests/golden/golden.h"

namespace cohort::testing::augment_test {
namespace {

using Operation = std::function<torch::Tensor(const torch::Tensor&, double)>;

template <typename Function>
Operation without_argument(Function function) {
  return [function](const torch::Tensor& x, double) { return function(x); };
}

template <typename Function>
Operation with_whole_argument(Function function) {
  return [function](const torch::Tensor& x, double argument) { return function(x, std::lround(argument)); };
}

// The operations by the file's names; the number that follows the name is their argument.
std::map<std::string, Operation> model_garden_operations() {
  return {
      {"autocontrast", without_argument(augment::autocontrast)},
      {"equalize", without_argument(augment::equalize)},
      {"invert", without_argument(augment::invert)},
      {"solarize", with_whole_argument(augment::solarize)},
      {"solarize_add",
       [](const torch::Tensor& x, double addition) { return augment::solarize_add(x, std::lround(addition)); }},
      {"posterize", with_whole_argument(augment::posterize)},
      {"color", augment::color},
      {"contrast", augment::contrast},
      {"brightness", augment::brightness},
      {"sharpness", augment::sharpness},
      {"grayscale", without_argument(augment::grayscale)},
      {"translate_x", augment::translate_x},
      {"translate_y", augment::translate_y},
      {"shear_x", augment::shear_x},
      {"shear_y", augment::shear_y},
      {"rotate", augment::rotate},
      {"normalize_image",  // the numbers are those of values from 0 to 255
       [](const torch::Tensor& x, double) {
         return preprocess_ops::normalize_image(x.to(torch::kFloat), {123.675, 116.28, 103.53},
                                                {58.395, 57.12, 57.375});
       }},
      {"center_crop_image", [](const torch::Tensor& x, double) { return preprocess_ops::center_crop_image(x); }},
      {"resize_image 5x7",
       [](const torch::Tensor& x, double) {
         return preprocess_ops::resize_image(x, {5, 7}).image;
       }},
      {"horizontal_flip", without_argument(preprocess_ops::horizontal_flip_image)},
      {"resize_and_crop 6x6",
       [](const torch::Tensor& x, double) {
         return preprocess_ops::resize_and_crop_image(x, {6, 6}, {.padded_size = {{6, 6}}}).image;
       }},
      {"color_jitter saturation", preprocess_ops::saturation},
  };
}

TEST(GoldenAugment, HasModelGardensPixels) {
  const auto operations = model_garden_operations();
  check_golden("augment_model_garden.json", [&](const nlohmann::json& golden) {
    const std::string text = golden.at("op");
    auto found = operations.find(text);
    double argument = 0.0;
    if (found == operations.end()) {
      const std::size_t space = text.rfind(' ');
      if (space != std::string::npos) {
        found = operations.find(text.substr(0, space));
        argument = std::stod(text.substr(space + 1));
      }
    }
    if (found == operations.end()) return "there is no operation " + text;
    const torch::Tensor y = found->second(golden_tensor(golden.at("input"), torch::kByte), argument);
    const bool bytes = y.scalar_type() == torch::kByte;
    return difference(text, y, golden_tensor(golden.at("output")),
                      {.absolute = bytes ? 0.0 : 1e-5, .relative = bytes ? 0.0 : 1e-4});
  });
}

TEST(GoldenAugment, HasModelGardensLevels) {
  check_golden("augment_levels.json", [](const nlohmann::json& golden) {
    const std::string operation = golden.at("op");
    std::string apart;
    for (const auto& [level, arguments] : golden.at("argument_at_level").items()) {
      const auto argument =
          augment::level_to_arg(operation, std::stod(level), {.cutout_const = 40.0, .translate_const = 100.0});
      if (!argument) return operation + " has no argument";
      apart += difference(operation + " at level " + level, *argument, golden_number(arguments.at(0).at(0)),
                          {.absolute = 1e-9, .relative = 1e-6});
    }
    return apart;
  });
}

}  // namespace
}  // namespace cohort::testing::augment_test
