// Layers that change values at random while they train.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <utility>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::noise_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;

// Returns the mean and the deviation of all elements.
std::pair<double, double> moments(const torch::Tensor& x) {
  return {x.mean().item<double>(), x.std().item<double>()};
}

TEST(NoiseTest, HasTheMomentsThatItPromises) {
  torch::manual_seed(11);
  const torch::Tensor ones = torch::ones({200, 500}, torch::kDouble);
  const auto [added, width] = moments(build(GaussianNoise(0.3), {500})(ones));
  EXPECT_NEAR(added, 1.0, 0.01);
  EXPECT_NEAR(width, 0.3, 0.01);
  const auto [factor, spread] = moments(build(GaussianDropout(0.2), {500})(ones));
  EXPECT_NEAR(factor, 1.0, 0.01);
  EXPECT_NEAR(spread, std::sqrt(0.2 / 0.8), 0.01);
  const torch::Tensor normal = torch::selu(torch::randn({400, 500}, torch::kDouble));
  const auto [mean, deviation] = moments(build(AlphaDropout(0.3), {500})(normal));
  EXPECT_NEAR(mean, moments(normal).first, 0.02);
  EXPECT_NEAR(deviation, moments(normal).second, 0.02);
}

// LibTorch's alpha dropout has the same values for the same mask.
TEST(NoiseTest, AlphaDropoutIsLibTorchs) {
  const Built layer = build(AlphaDropout(0.25), {100});
  const torch::Tensor x = random({20, 100});
  torch::manual_seed(4);
  const torch::Tensor ours = layer(x);
  torch::manual_seed(4);
  expect_close(ours, torch::alpha_dropout(x, 0.25, /*train=*/true), 1e-6);
}

TEST(NoiseTest, SpatialDropoutDropsWholeChannels) {
  torch::manual_seed(5);
  const auto check = [](const Layer& layer, const std::vector<int64_t>& shape, int64_t channels) {
    const Shape input(shape.begin() + 1, shape.end());
    const Built built = build(layer, input);
    const torch::Tensor y = built(torch::ones(shape, torch::kDouble)).transpose(1, channels).flatten(2);
    EXPECT_TRUE(torch::equal(std::get<0>(y.min(2)), std::get<0>(y.max(2)))) << layer.type();
    const torch::Tensor kept = y.select(2, 0).ne(0);
    EXPECT_NEAR(kept.to(torch::kDouble).mean().item<double>(), 0.75, 0.05);
    expect_close(y.max(), torch::tensor(1.0 / 0.75, torch::kDouble));
    expect_shape(built, input);
  };
  check(SpatialDropout1D(0.25), {50, 4, 40}, 2);
  check(SpatialDropout1D({.rate = 0.25, .channels_first = true}), {50, 40, 4}, 1);
  check(SpatialDropout2D(0.25), {50, 40, 3, 2}, 1);
  check(SpatialDropout3D(0.25), {50, 40, 3, 2, 2}, 1);
}

TEST(NoiseTest, DoesNothingOutsideOfTraining) {
  const torch::Tensor x = random({4, 6});
  const torch::Tensor mask = torch::ones({4, 6}, torch::kBool);
  for (const Layer& layer : {GaussianNoise(0.5), GaussianDropout(0.5), AlphaDropout(0.5)}) {
    const Built built = build(layer, {6});
    expect_shape(built, {6});
    EXPECT_TRUE(torch::equal(built.module->mask_of(x, mask), mask));
    built.module->eval();
    EXPECT_TRUE(built(x).is_same(x));
  }
}

TEST(NoiseTest, OptionsThatMakeNoSenseAreErrors) {
  expect_error<InvalidArgument>([] { GaussianNoise(-1.0); }, "GaussianNoise: stddev must be 0 or more, got -1");
  expect_error<InvalidArgument>([] { GaussianDropout(1.0); }, "GaussianDropout: rate must be in [0, 1), got 1");
  expect_error<InvalidArgument>([] { AlphaDropout(-0.1); }, "AlphaDropout: rate must be in [0, 1)");
  expect_error<InvalidArgument>([] { SpatialDropout2D(1.5); }, "SpatialDropout2D: rate must be in [0, 1)");
  expect_error<InvalidArgument>([] { build(SpatialDropout2D(0.5), {4}); }, "3 dimensions");
}

}  // namespace
}  // namespace cohort::noise_test
