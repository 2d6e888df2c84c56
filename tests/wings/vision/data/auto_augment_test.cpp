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

// Model Garden's functions gave the numbers below for this picture and these boxes (models 2.20 on TensorFlow 2.21).
torch::Tensor counted_picture() {
  return (torch::arange(11 * 14 * 3) * 37).remainder(256).view({11, 14, 3}).to(torch::kByte);
}
torch::Tensor boxes_of_it() {
  return torch::tensor({0.1F, 0.2F,  0.5F, 0.7F, 0.0F, 0.0F, 1.0F,  1.0F,  0.35F, 0.6F,
                        0.9F, 0.95F, 0.5F, 0.5F, 0.5F, 0.8F, 0.83F, 0.02F, 0.97F, 0.31F})
      .view({5, 4});
}
int64_t sum_of(const torch::Tensor& image) {
  return (image.to(torch::kLong).flatten() * torch::arange(image.numel()).remainder(97)).sum().item<int64_t>();
}

TEST(BoxesTest, MoveAsModelGardensWithThePicture) {
  struct Fact {
    std::string operation;
    double argument;
    bool horizontal;
    int64_t sum;
    std::vector<float> boxes;
  };
  const std::vector<Fact> facts = {
      {"rotate", 30, false, 2689051, {0.136363626F, 0.142857134F, 0.681818187F, 0.571428597F, 0.0F, 0.0F,         1.0F,
                                      1.0F,         0.227272719F, 0.5F,         0.681818187F, 1.0F, 0.318181813F, 0.5F,
                                      0.5F,         0.714285731F, 0.772727251F, 0.285714269F, 1.0F, 0.5F}},
      {"rotate", -17, false, 2599163, {0.136363626F, 0.285714269F, 0.5F, 0.714285731F, 0.0F,
                                       0.0F,         1.0F,         1.0F, 0.5F,         0.5F,
                                       0.954545498F, 0.928571463F, 0.5F, 0.5F,         0.590909123F,
                                       0.714285731F, 0.590909123F, 0.0F, 0.863636374F, 0.357142866F}},
      {"rotate", 90, false, 2646981, {0.318181813F, 0.214285702F, 0.863636374F, 0.5F, 0.0F,
                                      0.142857134F, 1.0F,         0.857142866F, 0.0F, 0.428571433F,
                                      0.5F,         0.785714269F, 0.136363626F, 0.5F, 0.5F,
                                      0.5F,         0.590909123F, 0.714285731F, 1.0F, 0.857142866F}},
      {"shear", 0.3, true, 2653302, {0.0909090936F, 0.0F,         0.454545468F, 0.571428597F, 0.0F,
                                     0.0F,          1.0F,         1.0F,         0.272727281F, 0.357142866F,
                                     0.818181813F,  0.857142866F, 0.454545468F, 0.357142866F, 0.454545468F,
                                     0.642857134F,  0.818181813F, 0.0F,         0.909090936F, 0.0714285746F}},
      {"shear", 0.3, false, 2691259, {0.0F,         0.142857149F, 0.363636374F,  0.642857134F, 0.0F,
                                      0.0F,         1.0F,         1.0F,          0.0F,         0.571428597F,
                                      0.545454562F, 0.928571403F, 0.0909090936F, 0.5F,         0.181818187F,
                                      0.785714269F, 0.636363626F, 0.0F,          0.909090936F, 0.285714298F}},
      {"shear", -0.12, true, 2767877, {0.0909090936F, 0.142857149F, 0.454545468F,  0.642857134F, 0.0F,
                                       0.0F,          1.0F,         1.0F,          0.272727281F, 0.571428597F,
                                       0.818181813F,  1.0F,         0.454545468F,  0.5F,         0.454545468F,
                                       0.785714269F,  0.818181813F, 0.0714285746F, 0.909090936F, 0.357142866F}},
      {"shear", -0.12, false, 2779623, {0.0909090936F, 0.142857149F, 0.545454562F, 0.642857134F, 0.0F,
                                        0.0F,          1.0F,         1.0F,         0.272727281F, 0.571428597F,
                                        0.909090936F,  0.928571403F, 0.454545468F, 0.5F,         0.545454562F,
                                        0.785714269F,  0.818181813F, 0.0F,         0.909090936F, 0.285714298F}},
      {"translate", 4.6, true, 2761911, {0.0909090936F, 0.0F,         0.454545468F, 0.357142866F, 0.0F,
                                         0.0F,          1.0F,         0.714285731F, 0.272727281F, 0.285714298F,
                                         0.818181813F,  0.642857134F, 0.454545468F, 0.214285716F, 0.454545468F,
                                         0.5F,          0.818181813F, 0.0F,         0.909090936F, 0.0500000007F}},
      {"translate", 4.6, false, 2641919, {0.0F,         0.142857149F, 0.0909090936F, 0.642857134F, 0.0F,
                                          0.0F,         0.636363626F, 1.0F,          0.0F,         0.571428597F,
                                          0.454545468F, 0.928571403F, 0.0909090936F, 0.5F,         0.0909090936F,
                                          0.785714269F, 0.454545468F, 0.0F,          0.545454562F, 0.285714298F}},
      {"translate", -3, true, 2636771, {0.0909090936F, 0.357142866F, 0.454545468F, 0.857142866F, 0.0F,
                                        0.214285716F,  1.0F,         1.0F,         0.272727281F, 0.785714269F,
                                        0.818181813F,  1.0F,         0.454545468F, 0.714285731F, 0.454545468F,
                                        1.0F,          0.818181813F, 0.214285716F, 0.909090936F, 0.5F}},
      {"translate", -3, false, 2743919, {0.363636374F, 0.142857149F, 0.727272749F, 0.642857134F, 0.272727281F,
                                         0.0F,         1.0F,         1.0F,         0.545454562F, 0.571428597F,
                                         1.0F,         0.928571403F, 0.727272749F, 0.5F,         0.727272749F,
                                         0.785714269F, 0.949999988F, 0.0F,         1.0F,         0.285714298F}},
  };
  const augment::BoxedImage of{.image = counted_picture(), .boxes = boxes_of_it()};
  for (const Fact& fact : facts) {
    SCOPED_TRACE(c10::str(fact.operation, " ", fact.argument, fact.horizontal ? " along the rows" : ""));
    const augment::BoxedImage moved = fact.operation == "rotate" ? augment::rotate_with_bboxes(of, fact.argument)
                                      : fact.operation == "shear"
                                          ? augment::shear_with_bboxes(of, fact.argument, fact.horizontal)
                                          : augment::translate_bbox(of, fact.argument, fact.horizontal);
    EXPECT_EQ(sum_of(moved.image), fact.sum);
    EXPECT_TRUE(torch::allclose(moved.boxes, torch::tensor(fact.boxes).view({5, 4}), 0, 1e-6)) << moved.boxes;
  }
  expect_error<InvalidArgument>([&] { augment::rotate_with_bboxes({.image = of.image, .boxes = {}}, 3); }, "got none");
  expect_error<InvalidArgument>(
      [&] {
        augment::translate_bbox({of.image, torch::zeros({4})}, 3, true);
      },
      "got Float[4]");
}

TEST(BoxesTest, WhatIsInABoxMovesAloneWithAThirdOfTheProbability) {
  const augment::BoxedImage of{.image = counted_picture(), .boxes = boxes_of_it().slice(0, 0, 1)};
  int moved = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const augment::BoxedImage y = augment::translate_y_only_bboxes(of, 1.0, 3.0, seeded(seed));
    EXPECT_TRUE(torch::equal(y.boxes, of.boxes));
    if (torch::equal(y.image, of.image)) continue;
    ++moved;
    EXPECT_EQ(sum_of(y.image), 2731919);
  }
  EXPECT_GT(moved, 60);
  EXPECT_LT(moved, 140);
  EXPECT_TRUE(torch::equal(augment::translate_y_only_bboxes(of, 0.0, 3.0, seeded(1)).image, of.image));
}

TEST(BoxesTest, TheBlurIsModelGardens) {
  const torch::Tensor x = counted_picture();
  const std::vector<std::pair<double, int64_t>> facts = {{0.1, 2747253}, {0.5, 2728047}, {2.0, 2727078}};
  for (const auto& [deviation, sum] : facts) EXPECT_EQ(sum_of(augment::gaussian_blur(x, deviation)), sum) << deviation;
  expect_error<InvalidArgument>([&] { augment::gaussian_blur(x, 0.0); }, "a deviation of 0");
  expect_error<InvalidArgument>([&] { augment::gaussian_blur(x.slice(0, 0, 1), 1.0); }, "2 by 2 pixels or more");
}

TEST(AutoAugmentTest, PoliciesForDetectionNeedBoxesAndMoveThem) {
  const augment::AutoAugment detection({.augmentation_name = "detection_v0"});
  EXPECT_EQ(detection.policies().size(), 5U);
  const augment::BoxedImage of{.image = counted_picture(), .boxes = boxes_of_it()};
  int differ = 0, refused = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const augment::BoxedImage y = detection(of, seeded(seed));
    EXPECT_EQ(y.image.sizes(), of.image.sizes());
    EXPECT_EQ(y.boxes.sizes(), of.boxes.sizes());
    differ += torch::equal(y.boxes, of.boxes) ? 0 : 1;
    try {
      (void)detection(of.image, seeded(seed));
    } catch (const InvalidArgument& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("moves boxes, and the picture came without any"), std::string::npos);
    }
  }
  EXPECT_GT(differ, 10);
  EXPECT_GT(refused, 10);
  EXPECT_EQ(augment::level_to_arg("TranslateY_Only_BBoxes", 5, {.translate_const = 10.0}), 60.0);
  EXPECT_EQ(augment::level_to_arg("TranslateY_BBox", 5, {.translate_const = 10.0}), 5.0);

  const auto operations = augment::RandAugment::build_for_detection().operations();
  EXPECT_EQ(std::count_if(operations.begin(), operations.end(),
                          [](const std::string& name) { return name.ends_with("_BBox"); }),
            5);
  const augment::BoxedImage drawn = augment::RandAugment::build_for_detection({.num_layers = 3})(
      {.image = of.image.to(torch::kFloat), .boxes = of.boxes}, seeded(3));
  EXPECT_EQ(drawn.image.scalar_type(), torch::kFloat);
  EXPECT_EQ(drawn.boxes.sizes(), of.boxes.sizes());
}

TEST(AutoAugmentTest, TheThreeOfDeit3) {
  const augment::AutoAugment three({.augmentation_name = "deit3_three_augment"});
  const torch::Tensor x = counted_picture();
  int grey = 0, bright = 0, blurred = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const torch::Tensor y = three(x, seeded(seed));
    grey += torch::equal(y, augment::grayscale(x)) ? 1 : 0;
    bright += torch::equal(y, augment::solarize(x, 128)) ? 1 : 0;
  }
  blurred = 60 - grey - bright;
  for (const int count : {grey, bright, blurred}) EXPECT_GT(count, 8);
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
