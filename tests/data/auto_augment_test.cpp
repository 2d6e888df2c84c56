// Model Garden's augmentation beyond its golden pixels (tests/golden/augment_test.cpp): what is drawn, and errors.
#include "cohort/data/auto_augment.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "cohort/data/preprocess_ops.h"
#include "cohort/error.h"
#include "tests/support/errors.h"

namespace cohort::auto_augment_test {
namespace {

using testing::expect_error;

torch::Tensor picture(int64_t height = 24, int64_t width = 20) {
  torch::manual_seed(2);
  return torch::randint(0, 256, {height, width, 3}, torch::kByte);
}

at::Generator seeded(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

TEST(RandAugmentTest, DrawsEveryOperationAndNone) {
  const augment::RandAugment whole({.num_layers = 1, .magnitude = 9});
  EXPECT_EQ(whole.operations().size(), 16U);
  const torch::Tensor x = picture();
  const std::set<std::string> numbers = {"AutoContrast", "Equalize", "Invert"};  // those without chance of their own
  std::set<std::string> seen;
  int same = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const torch::Tensor y = whole(x, seeded(seed));
    EXPECT_TRUE(torch::equal(y, whole(x, seeded(seed))));
    same += torch::equal(x, y) ? 1 : 0;
    for (const std::string& name : numbers) {
      if (torch::equal(y, augment::apply_at_level(x, name, 9, seeded(0)))) seen.insert(name);
    }
  }
  EXPECT_EQ(seen, numbers);
  EXPECT_GT(same, 2);
  EXPECT_LT(same, 60);
}

TEST(RandAugmentTest, OptionsHaveTheirEffect) {
  const torch::Tensor x = picture();
  EXPECT_TRUE(torch::equal(augment::RandAugment({.prob_to_apply = 0.0})(x, seeded(1)), x));
  EXPECT_TRUE(torch::equal(augment::RandAugment({.num_layers = 0})(x, seeded(1)), x));
  const torch::Tensor floats = augment::RandAugment()(x.to(torch::kFloat), seeded(4));
  EXPECT_EQ(floats.scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(floats.to(torch::kByte), augment::RandAugment()(x, seeded(4))));
  const augment::RandAugment left({.exclude_ops = {"Cutout", "Invert"}});
  EXPECT_EQ(left.operations().size(), 14U);
  bool differs = false;
  for (uint64_t seed = 0; seed < 20 && !differs; ++seed) {
    const augment::RandAugment varied({.num_layers = 1, .magnitude = 5, .magnitude_std = 2.0});
    const augment::RandAugment other({.num_layers = 1, .magnitude = 5, .magnitude_std = 0.5});
    differs = !torch::equal(varied(x, seeded(seed)), other(x, seeded(seed)));
  }
  EXPECT_TRUE(differs);
  expect_error<NotFound>([] { augment::RandAugment({.exclude_ops = {"Sharpen"}}); }, "no operation \"Sharpen\"");
  expect_error<InvalidArgument>([] { augment::RandAugment({.magnitude = 11}); }, "the level is 11");
  expect_error<InvalidArgument>([&] { augment::RandAugment()(x[0], seeded(0)); }, "uint8 [height, width, 3]");
}

TEST(AutoAugmentTest, AppliesItsPolicies) {
  const torch::Tensor x = picture();
  const torch::Tensor y = augment::AutoAugment({.augmentation_name = "test"})(x, seeded(1));
  const torch::Tensor right = augment::equalize(augment::translate_x(x, 100));
  const torch::Tensor left = augment::equalize(augment::translate_x(x, -100));
  EXPECT_TRUE(torch::equal(y, right) || torch::equal(y, left));
  const augment::AutoAugment own({.policies = {{{"Invert", 1.0, 0}, {"Solarize", 0.0, 5}}}});
  EXPECT_TRUE(torch::equal(own(x, seeded(1)), augment::invert(x)));
  const std::map<std::string, std::size_t> sizes = {
      {"v0", 25},     {"reduced_cifar10", 25},        {"svhn", 25}, {"reduced_imagenet", 25},
      {"simple", 13}, {"panoptic_deeplab_policy", 5}, {"vit", 9},   {"test", 1}};
  for (const auto& [name, size] : sizes) {
    const augment::AutoAugment augmented({.augmentation_name = name});
    EXPECT_EQ(augmented.policies().size(), size) << name;
    for (uint64_t seed = 0; seed < 10; ++seed) EXPECT_EQ(augmented(x, seeded(seed)).sizes(), x.sizes());
  }
  EXPECT_EQ(augment::AutoAugment({.augmentation_name = "vit"}).policies()[0].size(), 3U);
  expect_error<NotFound>([] { augment::AutoAugment({.augmentation_name = "v9"}); }, "no policy \"v9\"; there are v0");
  expect_error<InvalidArgument>([] { augment::AutoAugment({.policies = {{{"Invert", 1.5, 0}}}}); }, "is 1.5");
}

TEST(CutoutTest, PaintsASquareInsideTheImage) {
  const torch::Tensor x = torch::full({20, 20, 3}, 9, torch::kByte);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto painted = (augment::cutout(x, 3, seeded(seed), 128) == 128).sum().item<int64_t>() / 3;
    EXPECT_GE(painted, 9);  // a corner
    EXPECT_LE(painted, 36);
  }
  EXPECT_TRUE(torch::equal(augment::cutout(x, 0, seeded(1)), x));
  EXPECT_TRUE(torch::equal(augment::posterize(x + 128, 0), augment::posterize(x + 128, 1)));
}

TEST(RandomErasingTest, ReplacesAPartByNoise) {
  const torch::Tensor x = torch::full({32, 32, 3}, 100.0F);
  EXPECT_TRUE(torch::equal(augment::RandomErasing({.probability = 0.0})(x, seeded(1)), x));
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const torch::Tensor y = augment::RandomErasing({.probability = 1.0})(x, seeded(seed));
    const auto changed = (y != x).sum().item<int64_t>() / 3;
    EXPECT_GT(changed, 0);
    EXPECT_LT(changed, 32 * 32 / 2);
    EXPECT_LT(y.masked_select(y != x).abs().max().item<float>(), 8.0F);
  }
  expect_error<InvalidArgument>([] { augment::RandomErasing({.min_area = 0.5, .max_area = 0.2}); }, "areas from 0.5");
  expect_error<InvalidArgument>([] { augment::RandomErasing()(picture(), seeded(1)); }, "floating point");
}

TEST(MixupAndCutmixTest, LabelsSayWhatIsInThePictures) {
  torch::Tensor x = torch::zeros({4, 16, 16, 3});
  for (int64_t i = 0; i < 4; ++i) x[i].fill_(static_cast<double>(i));
  const torch::Tensor y = torch::arange(4, torch::kLong);
  for (const double cutmix : {0.0, 1.0}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const augment::MixupAndCutmix mix({.switch_prob = cutmix, .label_smoothing = 0.0, .num_classes = 4});
      const Example mixed = mix({.x = x, .y = y}, seeded(seed));
      EXPECT_TRUE(torch::allclose(mixed.y.sum(1), torch::ones({4})));
      // A picture has the value i, its partner 3 - i: the mean of the mixture is the labels' mean. CutMix cuts off what
      // reaches out, and its labels do not know, as in Model Garden.
      const torch::Tensor means = mixed.x.mean({1, 2, 3});
      const torch::Tensor wanted = mixed.y.matmul(torch::arange(4, torch::kFloat));
      if (cutmix > 0.0) continue;
      EXPECT_TRUE(torch::allclose(means, wanted, 1e-4, 1e-4));
    }
  }
  const augment::MixupAndCutmix none({.prob = 0.0, .label_smoothing = 0.4, .num_classes = 4});
  const Example plain = none({.x = x, .y = y}, seeded(0));
  EXPECT_TRUE(torch::equal(plain.x, x));
  EXPECT_TRUE(torch::allclose(plain.y[0], torch::tensor({0.7F, 0.1F, 0.1F, 0.1F})));
  expect_error<InvalidArgument>([] { augment::MixupAndCutmix({.mixup_alpha = 0.0, .cutmix_alpha = 0.0}); }, "an alpha");
  expect_error<InvalidArgument>([&] { augment::MixupAndCutmix({.num_classes = 3})({.x = x, .y = y}, seeded(0)); },
                                "labels are from 0 to 3");
}

TEST(PreprocessOpsTest, SizesCropsAndBoxes) {
  const torch::Tensor x = picture(20, 30);
  EXPECT_EQ(preprocess_ops::resize_image(x, 10).image.sizes(), (torch::IntArrayRef{10, 15, 3}));
  EXPECT_EQ(preprocess_ops::resize_image(x, 10, {.max_size = 12}).image.sizes(), (torch::IntArrayRef{8, 12, 3}));
  EXPECT_EQ(preprocess_ops::compute_padded_size({100, 200}, 32), (std::array<int64_t, 2>{128, 224}));
  const auto fitted = preprocess_ops::resize_and_crop_image(x, {15, 15}, {.padded_size = {{16, 16}}});
  EXPECT_EQ(fitted.image.sizes(), (torch::IntArrayRef{16, 16, 3}));
  EXPECT_EQ(fitted.image.slice(0, 10).abs().sum().item<float>(), 0.0F);
  EXPECT_TRUE(
      torch::allclose(fitted.info, torch::tensor({{20.0F, 30.0F}, {15.0F, 15.0F}, {0.5F, 0.5F}, {0.0F, 0.0F}})));
  const torch::Tensor boxes =
      preprocess_ops::resize_and_crop_boxes(torch::tensor({{4.0, 6.0, 40.0, 20.0}}), fitted.info, {15, 15});
  EXPECT_TRUE(torch::allclose(boxes, torch::tensor({{2.0F, 3.0F, 15.0F, 10.0F}})));
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto jittered = preprocess_ops::resize_and_crop_image(
        x, {16, 16}, {.padded_size = {{16, 16}}, .aug_scale_min = 0.5, .aug_scale_max = 2.0}, seeded(seed));
    EXPECT_EQ(jittered.image.sizes(), (torch::IntArrayRef{16, 16, 3}));
    const torch::Tensor part = preprocess_ops::random_crop_image(x, seeded(seed));
    const double area = static_cast<double>(part.size(0) * part.size(1)) / 600.0;
    EXPECT_GT(area, 0.05);
    EXPECT_LE(area, 1.0);
    EXPECT_EQ(
        preprocess_ops::color_jitter(x, seeded(seed), {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4}).sizes(),
        x.sizes());
    const torch::Tensor flipped = preprocess_ops::random_horizontal_flip(x, seeded(seed), 1.0);
    EXPECT_TRUE(torch::equal(flipped, x.flip({1})));
    EXPECT_TRUE(torch::equal(preprocess_ops::random_vertical_flip(x, seeded(seed), 0.0), x));
  }
  EXPECT_TRUE(torch::equal(preprocess_ops::color_jitter(x, seeded(0), {}), x));
  EXPECT_EQ(preprocess_ops::clip_or_pad_to_fixed_size(x, 25, 1).sizes(), (torch::IntArrayRef{25, 30, 3}));
  EXPECT_EQ(preprocess_ops::clip_or_pad_to_fixed_size(x, 5).sizes(), (torch::IntArrayRef{5, 30, 3}));
  expect_error<InvalidArgument>(
      [&] {
        preprocess_ops::resize_and_crop_image(x, {4, 4}, {.aug_scale_max = 2.0});
      },
      "without a generator");
  expect_error<InvalidArgument>([&] { preprocess_ops::normalize_image(x, {0.5}, {0.5}); }, "1 numbers in offset for 3");
}

}  // namespace
}  // namespace cohort::auto_augment_test
