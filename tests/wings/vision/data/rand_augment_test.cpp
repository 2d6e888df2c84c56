#include <gtest/gtest.h>
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cohort/data/augment.h"
#include "cohort/error.h"
#include "cohort/weights.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "wings/vision/data/images/adjust.h"

namespace cohort::rand_augment_test {
namespace {

using cohort::testing::expect_error;
using cohort::testing::read_file;
using cohort::testing::TemporaryFolder;

// Something with edges, ramps and a flat channel's corner.
torch::Tensor picture() {
  torch::manual_seed(4);
  const torch::Tensor x = torch::arange(40).view({1, 1, 40}) * 5;
  const torch::Tensor y = torch::arange(30).view({1, 30, 1}) * 3;
  torch::Tensor image = (x + y + torch::randint(0, 60, {3, 30, 40})).clamp(20, 230);
  image.slice(1, 0, 8).slice(2, 0, 8).fill_(90);
  return image.to(torch::kByte).contiguous();
}

TEST(RandAugmentTest, OperationsAgreeWithTorchvision) {
  if (std::system("/usr/bin/python3 -c 'import torchvision' 2> /dev/null") != 0) {
    GTEST_SKIP() << "/usr/bin/python3 has no torchvision (Debian's python3-torchvision): no reference";
  }
  const std::vector<std::pair<std::string, double>> cases = {
      {"Identity", 0.0},     {"ShearX", 0.21},    {"ShearX", -0.1},   {"ShearY", 0.3},    {"TranslateX", 7.4},
      {"TranslateX", -5.0},  {"TranslateY", 9.9}, {"Rotate", 17.0},   {"Rotate", -30.0},  {"Brightness", 0.4},
      {"Brightness", -0.9},  {"Color", 0.7},      {"Color", -0.6},    {"Contrast", 0.5},  {"Contrast", -0.5},
      {"Sharpness", 0.9},    {"Sharpness", -0.7}, {"Posterize", 4.0}, {"Posterize", 8.0}, {"Solarize", 120.0},
      {"AutoContrast", 0.0}, {"Equalize", 0.0},   {"Hue", 0.2},       {"Hue", -0.45}};
  const TemporaryFolder folder;
  const torch::Tensor image = picture();
  save_weights(folder / "image.safetensors", {{"image", image}});
  const std::string command = "/usr/bin/python3 tests/wings/vision/data/augment_reference.py " +
                              (folder / "image.safetensors").string() + " " + (folder / "results").string() + " '" +
                              nlohmann::json(cases).dump() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  const std::string bytes = read_file(folder / "results");
  ASSERT_EQ(bytes.size(), cases.size() * static_cast<std::size_t>(image.numel()));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [name, magnitude] = cases[i];
    const torch::Tensor wanted = torch::from_blob(
        const_cast<char*>(bytes.data()) + i * static_cast<std::size_t>(image.numel()), image.sizes(), torch::kByte);
    const torch::Tensor got =
        name == "Hue" ? images::adjust_hue(image, magnitude) : apply_augmentation(image, name, magnitude);
    const torch::Tensor off = (got.to(torch::kInt) - wanted.to(torch::kInt)).abs();
    // A place between two pixels may go to the other one; a value may be rounded the other way.
    const bool geometry = name.starts_with("Shear") || name.starts_with("Translate") || name == "Rotate";
    if (geometry) {
      EXPECT_LT((off > 0).to(torch::kDouble).mean().item<double>(), 0.01) << name << " " << magnitude;
    } else {
      EXPECT_LE(off.max().item<int>(), 1) << name << " " << magnitude;
    }
  }
}

TEST(RandAugmentTest, TheSameGeneratorGivesTheSameImage) {
  const torch::Tensor image = picture();
  int64_t different = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto changed = [&] { return rand_augment(image, at::make_generator<at::CPUGeneratorImpl>(seed)); };
    const torch::Tensor first = changed();
    EXPECT_TRUE(torch::equal(first, changed()));
    EXPECT_EQ(first.sizes(), image.sizes());
    different += torch::equal(first, image) ? 0 : 1;
  }
  EXPECT_GT(different, 30);
  const torch::Tensor grey = image.slice(0, 0, 1).contiguous();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    EXPECT_EQ(rand_augment(grey, at::make_generator<at::CPUGeneratorImpl>(seed)).sizes(), grey.sizes());
  }
}

TEST(RandAugmentTest, HueTurnsTheCircleOfColours) {
  torch::Tensor red = torch::zeros({3, 2, 2}, torch::kByte);
  red[0].fill_(200);
  const torch::Tensor green = images::adjust_hue(red, 1.0 / 3.0);
  EXPECT_LE(green[0].max().item<int>(), 1);
  EXPECT_NEAR(green[1].max().item<int>(), 200, 1);
  const torch::Tensor jittered = color_jitter(red, at::make_generator<at::CPUGeneratorImpl>(1), {.hue = 0.5});
  EXPECT_NEAR(std::get<0>(jittered.max(0)).max().item<int>(), 200, 1);
}

TEST(RandAugmentTest, RefusesWhatMakesNoSense) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  expect_error<InvalidArgument>([&] { rand_augment(picture(), generator, {.magnitude = 31}); }, "magnitude 31 of 31");
  expect_error<InvalidArgument>(
      [&] {
        rand_augment(torch::zeros({3, 4, 4}), generator, {.num_ops = 1});
      },
      "wanted uint8");
  expect_error<NotFound>([&] { apply_augmentation(picture(), "Melt", 1.0); }, "there is no operation \"Melt\"");
  expect_error<InvalidArgument>([&] { color_jitter(picture(), generator, {.hue = 0.6}); },
                                "hue is 0.6, wanted at most 0.5");
}

}  // namespace
}  // namespace cohort::rand_augment_test
