// Layers that change images at random while they train.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <utility>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::random_images_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;
using torch::Tensor;

const Shape kImage = {3, 6, 8};

std::vector<Layer> all() {
  return {RandomRotation({.factor = 0.2}),
          RandomTranslation({.height_factor = 0.2, .width_factor = 0.3}),
          RandomZoom({.height_factor = 0.3}),
          RandomFlip(),
          RandomCrop(4, 5),
          RandomContrast({.lower = 0.5, .upper = 0.5, .value_range = {-10.0, 10.0}}),
          RandomBrightness({.factor = 0.5, .value_range = {-10.0, 10.0}})};
}

TEST(RandomImagesTest, DrawAnewInTrainingAlone) {
  const Tensor x = random({4, 3, 6, 8});
  for (const Layer& layer : all()) {
    const Built built = build(layer, kImage);
    expect_shape(built, kImage);
    torch::manual_seed(7);
    const Tensor first = built(x);
    EXPECT_FALSE(torch::equal(first, built(x))) << layer.type();
    torch::manual_seed(7);
    EXPECT_TRUE(torch::equal(first, built(x))) << layer.type();
    built.module->eval();
    if (layer.type() == "RandomCrop") {
      expect_close(built(x), torch::upsample_bilinear2d(x.narrow(3, 0, 7), {4, 5}, /*align_corners=*/false));
    } else {
      EXPECT_TRUE(built(x).is_same(x)) << layer.type();
    }
    EXPECT_TRUE(layer.kind().options().has_value());
  }
}

TEST(RandomImagesTest, WarpsHaveTheGradientsOfWhatTheyDo) {
  torch::manual_seed(8);
  for (const FillMode mode : {FillMode::kConstant, FillMode::kNearest, FillMode::kReflect, FillMode::kWrap}) {
    const Built built = build(RandomRotation({.factor = {0.1, 0.1}, .fill_mode = mode}), {1, 4, 5});
    const Tensor x = random({2, 1, 4, 5}).requires_grad_(), other = random({2, 1, 4, 5}),
                 cotangent = random({2, 1, 4, 5});
    (built(x) * cotangent).sum().backward();
    // The map is linear: the gradient is its adjoint.
    EXPECT_NEAR((x.grad() * other).sum().item<double>(), (built(other) * cotangent).sum().item<double>(), 1e-6);
  }
}

TEST(RandomImagesTest, FlipsMirrorHalfOfTheImages) {
  torch::manual_seed(9);
  const Tensor x = random({400, 1, 2, 2});
  const auto share = [&](const RandomFlipOptions& options, const Tensor& mirrored) {
    const Tensor y = build(RandomFlip(options), {1, 2, 2})(x);
    return y.eq(mirrored).flatten(1).all(1).to(torch::kDouble).mean().item<double>();
  };
  EXPECT_NEAR(share({.vertical = false}, x.flip({3})), 0.5, 0.1);
  EXPECT_NEAR(share({.vertical = false}, x), 0.5, 0.1);
  EXPECT_NEAR(share({.horizontal = false}, x.flip({2})), 0.5, 0.1);
  EXPECT_NEAR(share({}, x.flip({2, 3})), 0.25, 0.1);
}

TEST(RandomImagesTest, CropsArePartsOfTheImage) {
  torch::manual_seed(10);
  const Tensor x = torch::arange(6 * 8, torch::kDouble).view({1, 1, 6, 8});
  const Built built = build(RandomCrop(4, 5), {1, 6, 8});
  std::set<std::pair<int64_t, int64_t>> places;
  for (int i = 0; i < 200; ++i) {
    const Tensor y = built(x);
    const auto first = static_cast<int64_t>(y[0][0][0][0].item<double>());
    places.insert({first / 8, first % 8});
    expect_close(y, x.narrow(2, first / 8, 4).narrow(3, first % 8, 5));
  }
  EXPECT_EQ(places.size(), 3U * 4U);
}

TEST(RandomImagesTest, ContrastAndBrightnessKeepToTheRange) {
  torch::manual_seed(11);
  const Tensor x = torch::rand({50, 3, 4, 4}, torch::kDouble) * 255;
  const Tensor brighter = build(RandomBrightness({.factor = {0.1, 0.1}}), {3, 4, 4})(x);
  expect_close(brighter, (x + 25.5).clamp_max(255), 1e-5);
  const Tensor flat = build(RandomContrast({.lower = 1.0}), {3, 4, 4})(x);
  EXPECT_TRUE((flat.amax({2, 3}) - flat.amin({2, 3}) <= x.amax({2, 3}) - x.amin({2, 3}) + 1e-9).all().item<bool>());
  expect_close(flat.mean({2, 3}), x.mean({2, 3}), 1e-9);
}

// Replicas draw by themselves, and the same again from the same seed.
TEST(RandomImagesTest, ReplicasHaveGeneratorsOfTheirOwn) {
  const auto draw = [] {
    const MirroredStrategy strategy({.devices = cpu_devices(2)});
    strategy.set_seed(3);
    return strategy.run([](Replica& /*replica*/) {
      return build(RandomBrightness({.factor = 0.5}), {1, 2, 2})(torch::full({1, 1, 2, 2}, 100.0, torch::kDouble));
    });
  };
  const auto first = draw().values(), second = draw().values();
  EXPECT_FALSE(torch::equal(first[0], first[1]));
  EXPECT_TRUE(torch::equal(first[0], second[0]));
  EXPECT_TRUE(torch::equal(first[1], second[1]));
}

TEST(RandomImagesTest, OptionsThatMakeNoSenseAreErrors) {
  expect_error<InvalidArgument>([] { RandomRotation({.factor = 2.0}); }, "factor must be an interval within [-1, 1]");
  expect_error<InvalidArgument>([] { RandomTranslation({.height_factor = {0.5, 0.1}}); }, "height_factor must be");
  expect_error<InvalidArgument>([] { RandomZoom({.height_factor = {-1.0, 0.0}}); }, "height_factor must be above -1");
  expect_error<InvalidArgument>([] { RandomFlip({.horizontal = false, .vertical = false}); }, "neither");
  expect_error<InvalidArgument>([] { RandomCrop(4, 0); }, "must be positive, got 4 x 0");
  expect_error<InvalidArgument>([] { RandomContrast({.lower = 2.0}); }, "lower must be in [0, 1], got 2");
  expect_error<InvalidArgument>([] { RandomBrightness({.value_range = {1.0, 1.0}}); }, "value_range must have");
  expect_error<InvalidArgument>([] { build(RandomFlip(), {4}); }, "[channels, height, width]");
}

}  // namespace
}  // namespace cohort::random_images_test
