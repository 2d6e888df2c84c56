#include "cohort/data/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::augment_test {
namespace {

using testing::expect_error;

at::Generator seeded(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

// Every pixel has a value of its own.
torch::Tensor image(int64_t height, int64_t width) {
  return torch::arange(height * width, torch::kFloat).view({1, height, width}).expand({3, -1, -1}).contiguous();
}

TEST(Augment, HalfOfTheImagesAreFlipped) {
  const torch::Tensor one = image(4, 6);
  int flipped = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const torch::Tensor result = random_horizontal_flip(one, seeded(seed));
    EXPECT_TRUE(torch::equal(result, random_horizontal_flip(one, seeded(seed))));
    const bool same = torch::equal(result, one);
    if (same) continue;
    EXPECT_TRUE(torch::equal(result, one.flip({2})));
    ++flipped;
  }
  EXPECT_NEAR(flipped, 200, 40);
  EXPECT_TRUE(torch::equal(random_horizontal_flip(one, seeded(1), 0.0), one));
  EXPECT_TRUE(torch::equal(random_horizontal_flip(one, seeded(1), 1.0), one.flip({2})));
}

TEST(Augment, CropsComeFromEverywhere) {
  const torch::Tensor one = image(5, 5) + 1;
  std::set<double> corners;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const torch::Tensor crop = random_crop(one, 4, 3, seeded(seed));
    EXPECT_EQ(crop.sizes(), (std::vector<int64_t>{3, 4, 3}));
    corners.insert(crop[0][0][0].item<double>());
    EXPECT_EQ(crop[0][1][0].item<double>(), crop[0][0][0].item<double>() + 5);
  }
  EXPECT_EQ(corners, (std::set<double>{1, 2, 3, 6, 7, 8}));
  bool padded = false;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const torch::Tensor crop = random_crop(one, 5, 5, seeded(seed), {.padding = 2});
    EXPECT_EQ(crop.sizes(), one.sizes());
    padded = padded || crop.min().item<double>() == 0.0;
  }
  EXPECT_TRUE(padded);
  expect_error<InvalidArgument>([&] { (void)random_crop(one, 6, 5, seeded(1)); }, "6 x 5 of an image of 5 x 5");
}

TEST(Augment, WhatStandsAroundAnImage) {
  const torch::Tensor one = torch::rand({3, 4, 5});
  // All that there is, so from one place only.
  const auto whole = [&](int64_t p, PaddingMode mode) {
    return random_crop(one, 4 + 2 * p, 5 + 2 * p, seeded(1), {.padding = p, .padding_mode = mode});
  };
  EXPECT_TRUE(torch::equal(whole(2, PaddingMode::kConstant), at::constant_pad_nd(one, {2, 2, 2, 2})));
  EXPECT_TRUE(torch::equal(whole(7, PaddingMode::kEdge), at::replication_pad2d(one, {7, 7, 7, 7})));
  EXPECT_TRUE(torch::equal(whole(3, PaddingMode::kReflect), at::reflection_pad2d(one, {3, 3, 3, 3})));
  const torch::Tensor wide = torch::cat({one.flip({2}), one, one.flip({2})}, 2);
  const torch::Tensor nine = torch::cat({wide.flip({1}), wide, wide.flip({1})}, 1);
  EXPECT_TRUE(torch::equal(whole(4, PaddingMode::kSymmetric), nine.slice(2, 1, 14)));
  expect_error<InvalidArgument>([&] { whole(4, PaddingMode::kReflect); }, "padding is 4, wanted 0 to 3");
  expect_error<InvalidArgument>([&] { whole(-1, PaddingMode::kConstant); }, "padding is -1, wanted 0 or more");
}

TEST(Augment, ResizedCropsHaveTheAreasAndShapesThatAreAllowed) {
  // An image whose value is the place: a crop's first and last columns say how wide it was.
  const int64_t size = 200;
  const torch::Tensor columns = torch::arange(size).to(torch::kByte).view({1, 1, size}).expand({3, size, size});
  const RandomResizedCropOptions options{.min_area = 0.25, .max_area = 0.5, .min_ratio = 0.5, .max_ratio = 2.0};
  double least = 1e9;
  double most = 0.0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const torch::Tensor crop = random_resized_crop(columns, 20, 20, seeded(seed), options);
    EXPECT_EQ(crop.sizes(), (std::vector<int64_t>{3, 20, 20}));
    const double width = (crop[0][0][19].item<double>() - crop[0][0][0].item<double>()) * 20.0 / 19.0;
    least = std::min(least, width);
    most = std::max(most, width);
  }
  EXPECT_GE(least, std::sqrt(0.25 * 0.5) * 200 - 8);
  EXPECT_LE(least, std::sqrt(0.25 * 0.5) * 200 + 20);
  EXPECT_LE(most, std::sqrt(0.5 * 2.0) * 200 + 8);
  EXPECT_GE(most, 160);
  // If no shape fits, the middle is cut out.
  const torch::Tensor narrow = torch::zeros({3, 100, 2}, torch::kByte);
  EXPECT_EQ(random_resized_crop(narrow, 8, 8, seeded(3), {.min_area = 0.9}).sizes(), (std::vector<int64_t>{3, 8, 8}));
  expect_error<InvalidArgument>([&] { (void)random_resized_crop(columns, 2, 2, seeded(1), {.min_area = 0.0}); },
                                "areas from 0 to 1");
}

TEST(Augment, ColoursAreJittered) {
  const torch::Tensor one = torch::randint(0, 256, {3, 6, 7}, seeded(1), torch::kByte);
  EXPECT_TRUE(torch::equal(color_jitter(one, seeded(2), {}), one));
  const torch::Tensor brighter =
      color_jitter(torch::full({3, 2, 2}, 100, torch::kByte), seeded(3), {.brightness = 0.5});
  EXPECT_GE(brighter.min().item<int64_t>(), 50);
  EXPECT_LE(brighter.max().item<int64_t>(), 150);
  EXPECT_EQ(brighter.min().item<int64_t>(), brighter.max().item<int64_t>());
  bool less = false;
  bool more = false;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const torch::Tensor result = color_jitter(one, seeded(seed), {.contrast = 0.9});
    const double before = one.to(torch::kFloat).std().item<double>();
    const double after = result.to(torch::kFloat).std().item<double>();
    less = less || after < 0.7 * before;
    more = more || after > before;
    EXPECT_TRUE(torch::equal(result, color_jitter(one, seeded(seed), {.contrast = 0.9})));
  }
  EXPECT_TRUE(less && more);
  const torch::Tensor grey = torch::full({3, 2, 2}, 90, torch::kByte);
  EXPECT_LE((color_jitter(grey, seeded(4), {.saturation = 1.0}).to(torch::kLong) - 90).abs().max().item<int64_t>(), 1);
  EXPECT_EQ(color_jitter(one.slice(0, 0, 1), seeded(1), {.contrast = 0.2, .saturation = 0.5}).size(0), 1);
  expect_error<InvalidArgument>([&] { (void)color_jitter(one, seeded(1), {.contrast = -1.0}); }, "a reach is -1");
}

// Example i is all i, so that what it was mixed of can be read off.
Example numbered_batch() {
  const torch::Tensor y = torch::arange(8, torch::kLong);
  return {.x = y.to(torch::kFloat).view({8, 1, 1, 1}).expand({8, 3, 10, 10}).contiguous(), .y = y};
}

TEST(Augment, MixedExamplesHaveMixedLabels) {
  const torch::Tensor classes = torch::arange(8, torch::kFloat);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const bool cut : {false, true}) {
      const Example mixed = cut ? cutmix(numbered_batch(), 8, seeded(seed)) : mixup(numbered_batch(), 8, seeded(seed));
      EXPECT_EQ(mixed.x.sizes(), (std::vector<int64_t>{8, 3, 10, 10}));
      EXPECT_EQ(mixed.y.sizes(), (std::vector<int64_t>{8, 8}));
      EXPECT_TRUE(torch::allclose(mixed.y.sum(1), torch::ones({8})));
      // The mean of the pixels is that of the labels.
      EXPECT_TRUE(torch::allclose(mixed.x.mean({1, 2, 3}), mixed.y.mv(classes), 1e-4, 1e-4)) << mixed.y;
      EXPECT_TRUE(!cut || torch::equal(mixed.x, mixed.x.round()));
    }
  }
  const Example twice = mixup(cutmix(numbered_batch(), 8, seeded(1)), 8, seeded(2));
  EXPECT_TRUE(torch::allclose(twice.y.sum(1), torch::ones({8})));
  expect_error<InvalidArgument>([] { (void)mixup(numbered_batch(), 4, seeded(1)); },
                                "a label is 7, there are 4 classes");
  expect_error<InvalidArgument>([] { (void)mixup(numbered_batch(), 8, seeded(1), 0.0); }, "alpha is 0");
  expect_error<InvalidArgument>([] { (void)cutmix({.x = torch::zeros({2, 3})}, 8, seeded(1)); }, "of 4 dimensions");
}

TEST(Augment, NormalizeIsTorchvisions) {
  const torch::Tensor bytes = torch::arange(2 * 3 * 4).to(torch::kByte).view({2, 3, 4});
  const torch::Tensor mean = torch::tensor({0.3, 0.1}).view({2, 1, 1});
  const torch::Tensor deviation = torch::tensor({0.5, 0.25}).view({2, 1, 1});
  const torch::Tensor wanted = (bytes.to(torch::kFloat) / 255.0 - mean) / deviation;
  EXPECT_TRUE(torch::allclose(normalize(bytes, {0.3, 0.1}, {0.5, 0.25}), wanted, 1e-6, 1e-6));
  const torch::Tensor floats = bytes.to(torch::kFloat) / 255.0;
  EXPECT_TRUE(torch::allclose(normalize(floats, {0.3, 0.1}, {0.5, 0.25}), wanted, 1e-6, 1e-6));
  expect_error<InvalidArgument>([&] { (void)normalize(bytes, {0.3}, {0.5}); },
                                "1 means and 1 deviations for 2 channels");
  // Photographs as they are decoded, the channels of a pixel together, have a way of their own.
  const torch::Tensor photograph =
      torch::randint(0, 256, {7, 13, 3}, seeded(3), torch::TensorOptions(torch::kByte)).permute({2, 0, 1});
  EXPECT_TRUE(torch::equal(normalize(photograph, {0.3, 0.1, 0.2}, {0.5, 0.25, 0.3}),
                           normalize(photograph.contiguous(), {0.3, 0.1, 0.2}, {0.5, 0.25, 0.3})));
}

}  // namespace
}  // namespace cohort::augment_test
