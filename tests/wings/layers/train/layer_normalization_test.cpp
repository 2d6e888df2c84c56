#include "cohort/train/layers/layer_normalization.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::layer_normalization_test {
namespace {

using testing::expect_error;

namespace F = torch::nn::functional;

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_shape;
using testing::random;

TEST(LayerNormalizationTest, MatchesTheFunctional) {
  const Built layer = build(LayerNormalization({.dimensions = 2}), {3, 4, 5});
  const torch::Tensor x = random({2, 3, 4, 5});
  expect_shape(layer, {3, 4, 5});
  expect_close(layer(x), F::layer_norm(x, F::LayerNormFuncOptions({4, 5}).eps(1e-3)));
  EXPECT_EQ(layer["weight"].sizes(), (torch::IntArrayRef{4, 5}));
  expect_error<InvalidArgument>([] { build(LayerNormalization({.dimensions = 3}), {4}); }, "at least 3 dimension");
}

}  // namespace
}  // namespace cohort::layer_normalization_test
