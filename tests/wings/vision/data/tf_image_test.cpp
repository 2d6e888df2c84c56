// tf.image beyond its golden pixels (tests/golden/images_test.cpp): batches, dtypes, maps of a Dataset, chance, errors.
#include "cohort/data/tf_image.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

#include "cohort/data/auto_augment.h"
#include "cohort/dataset.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::tf_image_test {
namespace {

using image::ResizeMethod;
using testing::expect_error;

torch::Tensor pictures(int64_t count, int64_t height = 6, int64_t width = 5) {
  torch::manual_seed(1);
  return torch::randint(0, 256, {count, height, width, 3}, torch::kByte);
}

at::Generator seeded(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

TEST(TFImageTest, BatchesAreTheirImages) {
  using Function = std::function<torch::Tensor(const torch::Tensor&)>;
  const std::vector<Function> functions = {
      [](const torch::Tensor& x) { return image::resize(x, 4, 9); },
      [](const torch::Tensor& x) { return image::resize(x, 9, 4, {.method = ResizeMethod::kNearest}); },
      [](const torch::Tensor& x) { return image::resize(x, 3, 3, {.method = ResizeMethod::kBicubic}); },
      [](const torch::Tensor& x) { return image::resize_with_pad(x, 8, 8); },
      [](const torch::Tensor& x) { return image::resize_with_crop_or_pad(x, 3, 11); },
      [](const torch::Tensor& x) { return image::central_crop(x, 0.6); },
      [](const torch::Tensor& x) { return image::rot90(x, 3); },
      [](const torch::Tensor& x) { return image::adjust_contrast(x, 1.5); },
      [](const torch::Tensor& x) { return image::adjust_hue(x, -0.3); },
      image::transpose,
      image::flip_left_right,
      image::flip_up_down,
      image::rgb_to_grayscale,
      image::per_image_standardization,
      [](const torch::Tensor& x) { return imagenet_utils::preprocess_input(x); },
  };
  const torch::Tensor batch = pictures(3);
  for (std::size_t i = 0; i < functions.size(); ++i) {
    const torch::Tensor together = functions[i](batch);
    for (int64_t j = 0; j < 3; ++j) {
      EXPECT_TRUE(torch::allclose(together[j].to(torch::kFloat), functions[i](batch[j]).to(torch::kFloat))) << i;
    }
  }
}

TEST(TFImageTest, EveryMethodKeepsAnEvenImage) {
  const torch::Tensor even = torch::full({7, 5, 3}, 40.0F);
  for (const ResizeMethod method :
       {ResizeMethod::kBilinear, ResizeMethod::kBicubic, ResizeMethod::kArea, ResizeMethod::kLanczos3,
        ResizeMethod::kLanczos5, ResizeMethod::kGaussian, ResizeMethod::kMitchellCubic, ResizeMethod::kNearest}) {
    for (const bool antialias : {false, true}) {
      const torch::Tensor y = image::resize(even, 4, 9, {.method = method, .antialias = antialias});
      EXPECT_LT((y - 40.0F).abs().max().item<float>(), 1e-3F) << static_cast<int>(method);
    }
  }
}

TEST(TFImageTest, SizesAndDtypes) {
  const torch::Tensor picture = pictures(1)[0];
  EXPECT_EQ(image::resize(picture, 6, 5).scalar_type(), torch::kByte);
  EXPECT_EQ(image::resize(picture, 7, 5).scalar_type(), torch::kFloat);
  EXPECT_EQ(image::resize(picture, 12, 5, {.preserve_aspect_ratio = true}).sizes(), (torch::IntArrayRef{6, 5, 3}));
  EXPECT_EQ(image::resize(picture, 3, 50, {.preserve_aspect_ratio = true}).sizes(), (torch::IntArrayRef{3, 2, 3}));
  const torch::Tensor wide = image::convert_image_dtype(picture, torch::kShort);
  EXPECT_TRUE(torch::equal(wide, picture.to(torch::kShort) * 128));
  EXPECT_TRUE(torch::equal(image::convert_image_dtype(wide, torch::kByte), picture));
  const torch::Tensor over = torch::full({1, 1, 1}, 1.5);
  EXPECT_EQ(image::convert_image_dtype(over, torch::kByte, /*saturate=*/true).item<int>(), 255);
  EXPECT_EQ(image::convert_image_dtype(over, torch::kLong, /*saturate=*/true).item<int64_t>(), 9223372036854774784);
  const torch::Tensor colors = torch::rand({4, 4, 3}, torch::kDouble);
  EXPECT_TRUE(torch::allclose(image::hsv_to_rgb(image::rgb_to_hsv(colors)), colors));
}

TEST(TFImageTest, BoxesThatReachOutAreFilledUp) {
  const torch::Tensor batch = pictures(2).to(torch::kFloat);
  const torch::Tensor boxes = torch::tensor({{0.0, 0.0, 1.0, 1.0}, {-1.0, 0.0, 1.0, 1.0}});
  const torch::Tensor y =
      image::crop_and_resize(batch, boxes, torch::tensor({1, 0}), 6, 5, {.extrapolation_value = -7.0});
  EXPECT_TRUE(torch::allclose(y[0], batch[1]));
  EXPECT_TRUE(torch::equal(y[1][0], torch::full({5, 3}, -7.0F)));
  const torch::Tensor nearest =
      image::crop_and_resize(batch, boxes, torch::tensor({1, 0}), 6, 5, {.method = ResizeMethod::kNearest});
  EXPECT_TRUE(torch::equal(nearest[0], batch[1]));
  expect_error<InvalidArgument>(
      [&] {
        image::crop_and_resize(batch, boxes, torch::tensor({1, 2}), 2, 2);
      },
      "box_indices are from 1 to 2, there are 2 images");
}

TEST(TFImageTest, ChanceIsTheGenerators) {
  const torch::Tensor batch = pictures(64);
  const torch::Tensor flipped = image::random_flip_left_right(batch, seeded(3));
  EXPECT_TRUE(torch::equal(flipped, image::random_flip_left_right(batch, seeded(3))));
  int64_t mirrored = 0;
  for (int64_t i = 0; i < 64; ++i) {
    if (torch::equal(flipped[i], batch[i])) continue;
    EXPECT_TRUE(torch::equal(flipped[i], batch[i].flip({1})));
    ++mirrored;
  }
  EXPECT_GT(mirrored, 16);
  EXPECT_LT(mirrored, 48);
  EXPECT_EQ(image::random_crop(batch, 2, 3, seeded(5)).sizes(), (torch::IntArrayRef{64, 2, 3, 3}));
  const torch::Tensor grey = torch::full({2, 2, 3}, 0.5);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto delta = (image::random_brightness(grey, 0.2, seeded(seed)) - grey)[0][0][0].item<double>();
    EXPECT_LE(std::abs(delta), 0.2);
    EXPECT_TRUE(torch::allclose(image::random_contrast(grey, 0.5, 2.0, seeded(seed)), grey));
    EXPECT_TRUE(torch::allclose(image::random_saturation(grey, 0.5, 2.0, seeded(seed)), grey));
    EXPECT_TRUE(torch::allclose(image::random_hue(grey, 0.5, seeded(seed)), grey));
  }
}

TEST(TFImageTest, FunctionsAreMapsOfADataset) {
  const torch::Tensor batch = pictures(5);
  const auto changed = [&](int threads) {
    const Dataset dataset =
        Dataset::from_tensor_slices(batch)
            .map(on_x([](const torch::Tensor& x) { return image::resize(x, 4, 4); }), {.num_parallel_calls = threads})
            .random_map(on_x([](const torch::Tensor& x, at::Generator generator) {
                          return image::random_flip_up_down(x, generator);
                        }),
                        {.seed = 9, .threads = {.num_parallel_calls = threads}})
            .batch(5);
    return dataset.iterator().next()->x;
  };
  const torch::Tensor alone = changed(1);
  EXPECT_EQ(alone.sizes(), (torch::IntArrayRef{5, 4, 4, 3}));
  EXPECT_TRUE(torch::equal(alone, changed(3)));
}

TEST(TFImageTest, AugmentationIsAMapToo) {
  const Dataset records = Dataset::from_tensor_slices(pictures(3));
  const Dataset pictures = records.map(on_x([](const torch::Tensor& x) { return image::resize(x, 8, 8); }))
                               .random_map(on_x(augment::RandAugment({.num_layers = 2, .magnitude = 9})));
  EXPECT_EQ(pictures.batch(3).iterator().next()->x.sizes(), (torch::IntArrayRef{3, 8, 8, 3}));
}

TEST(TFImageTest, RefusesWhatDoesNotFit) {
  const torch::Tensor picture = pictures(1)[0];
  expect_error<InvalidArgument>([&] { image::resize(picture, 0, 3); }, "0 x 3 has to be positive");
  expect_error<InvalidArgument>([&] { image::resize(picture[0], 3, 3); }, "wanted [height, width, channels]");
  expect_error<InvalidArgument>([&] { image::adjust_hue(picture.slice(2, 0, 2), 0.1); }, "wanted 3 channels");
  expect_error<InvalidArgument>([&] { image::adjust_hue(picture, 2.0); }, "delta is 2");
  expect_error<InvalidArgument>([&] { image::rgb_to_hsv(picture); }, "wanted floating point");
  expect_error<InvalidArgument>([&] { image::central_crop(picture, 0.0); }, "the fraction is 0");
  expect_error<InvalidArgument>([&] { image::crop_to_bounding_box(picture, 3, 0, 4, 2); }, "does not lie in 6 x 5");
  expect_error<InvalidArgument>([&] { image::pad_to_bounding_box(picture, 0, 0, 5, 9); }, "does not lie in 5 x 9");
  expect_error<InvalidArgument>([&] { image::convert_image_dtype(picture, torch::kBool); }, "no dtype of images");
  expect_error<InvalidArgument>([&] { image::random_crop(picture, 7, 2, seeded(0)); }, "7 x 2 of images of 6 x 5");
}

}  // namespace
}  // namespace cohort::tf_image_test
