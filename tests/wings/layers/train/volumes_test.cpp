// Layers of sequences and volumes that change their size: against LibTorch's operations.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"

namespace cohort::volumes_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;

TEST(VolumesTest, TransposedConvolutionsAreLibTorchs) {
  torch::manual_seed(1);
  const Built volumes =
      build(Conv3DTranspose({.filters = 2, .kernel_size = {3, 2, 4}, .strides = {2, 1, 3}}), {3, 2, 3, 2});
  expect_shape(volumes, {3, 2, 3, 2});
  const torch::Tensor x = random({2, 3, 2, 3, 2});
  expect_close(volumes(x), torch::conv_transpose3d(x, volumes["weight"], volumes["bias"], {2, 1, 3}));
  const Built sequences = build(Conv1DTranspose({.filters = 2, .kernel_size = 3, .padding = Padding::kSame}), {3, 7});
  expect_shape(sequences, {3, 7});
  const torch::Tensor y = random({2, 3, 7});
  expect_close(sequences(y), torch::conv_transpose1d(y, sequences["weight"], sequences["bias"], {1}, {1}));
  // A dimension whose size is not known keeps so.
  EXPECT_EQ(build(Conv1DTranspose({.filters = 2, .kernel_size = 3, .strides = 2}), {3, -1}).output, (Shape{2, -1}));
  expect_error<InvalidArgument>([] { Conv3DTranspose({.filters = 1}); },
                                "Conv3DTranspose: kernel_size must be positive");
  expect_error<InvalidArgument>([] { Conv1DTranspose({.filters = 1, .kernel_size = 2, .output_padding = 1}); },
                                "below the strides, got 1");
  expect_error<InvalidArgument>([] { build(Conv1DTranspose({.filters = 1, .kernel_size = 2}), {4}); },
                                "1 dimension(s)");
}

TEST(VolumesTest, PoolingIsLibTorchs) {
  torch::manual_seed(2);
  const torch::Tensor x = random({2, 3, 5, 4, 6});
  const Pooling3DOptions plain{.pool_size = {2, 1, 3}, .strides = Size3(1, 2, 2)};
  expect_close(build(MaxPooling3D(plain), {3, 5, 4, 6})(x), torch::max_pool3d(x, {2, 1, 3}, {1, 2, 2}));
  expect_close(build(AveragePooling3D(plain), {3, 5, 4, 6})(x), torch::avg_pool3d(x, {2, 1, 3}, {1, 2, 2}));
  // Padding takes no part: LibTorch can leave it out where it is the same at both ends.
  const Pooling3DOptions same{.pool_size = 3, .strides = Size3(1), .padding = Padding::kSame};
  expect_close(build(AveragePooling3D(same), {3, 5, 4, 6})(x),
               torch::avg_pool3d(x, 3, 1, 1, /*ceil_mode=*/false, /*count_include_pad=*/false));
  expect_close(build(MaxPooling3D(same), {3, 5, 4, 6})(x), torch::max_pool3d(x, 3, 1, 1));
  for (const Layer& layer : {MaxPooling3D(same), AveragePooling3D(plain), GlobalAveragePooling3D(),
                             GlobalMaxPooling3D({.keepdims = true})}) {
    expect_shape(build(layer, {3, 5, 4, 6}), {3, 5, 4, 6});
  }
  expect_close(build(GlobalAveragePooling3D(), {3, 5, 4, 6})(x), x.mean({2, 3, 4}));
  expect_error<InvalidArgument>([] { MaxPooling3D({.pool_size = 0}); }, "pool_size must be positive");
  expect_error<InvalidArgument>([] { build(MaxPooling3D(), {3, 1, 4, 4}); }, "of at least 2 x 2 x 2");
}

TEST(VolumesTest, BordersAndUpSampling) {
  const torch::Tensor x = random({2, 3, 4}), v = random({2, 3, 2, 3, 4});
  expect_close(build(ZeroPadding1D({1, 2}), {3, 4})(x), torch::constant_pad_nd(x, {1, 2}));
  expect_close(build(Cropping1D({1, 2}), {3, 4})(x), x.slice(2, 1, 2));
  expect_close(build(Cropping3D({{0, 1}, 1, {2, 0}}), {3, 2, 3, 4})(v), v.slice(2, 0, 1).slice(3, 1, 2).slice(4, 2, 4));
  expect_close(build(UpSampling1D(3), {3, 4})(x), x.repeat_interleave(3, 2));
  expect_close(build(UpSampling3D({1, 2, 3}), {3, 2, 3, 4})(v), v.repeat_interleave(2, 3).repeat_interleave(3, 4));
  for (const Layer& layer : {ZeroPadding1D(), Cropping1D(), UpSampling1D()}) expect_shape(build(layer, {3, 4}), {3, 4});
  for (const Layer& layer : {ZeroPadding3D(), Cropping3D({0, 1, 1}), UpSampling3D()}) {
    expect_shape(build(layer, {3, 2, 3, 4}), {3, 2, 3, 4});
  }
  expect_error<InvalidArgument>([] { build(Cropping1D({2, 2}), {3, 4}); }, "more than 4 elements in dimension 1");
  expect_error<InvalidArgument>([] { ZeroPadding3D(-1); }, "must be 0 or more, got -1");
  expect_error<InvalidArgument>([] { UpSampling1D(0); }, "size must be positive");
}

TEST(VolumesTest, BicubicUpSamplingKeepsConstants) {
  const Built layer =
      build(UpSampling2D({.size = {3, 2}, .interpolation = UpSampling2DOptions::Interpolation::kBicubic}), {2, 3, 5});
  expect_shape(layer, {2, 3, 5});
  expect_close(layer(torch::full({1, 2, 3, 5}, 4.0, torch::kDouble)), torch::full({1, 2, 9, 10}, 4.0, torch::kDouble),
               1e-5);
}

TEST(VolumesTest, VectorsBecomeUnitsAndRepeat) {
  const torch::Tensor x = random({3, 4});
  expect_close(build(UnitNormalization(), {4})(x), torch::nn::functional::normalize(x));
  expect_shape(build(UnitNormalization({.axis = {1, 2}}), {4, 2}), {4, 2});
  expect_close(build(RepeatVector(3), {4})(x)[2], x[2].expand({3, 4}));
  expect_shape(build(RepeatVector(2), {4}), {4});
  expect_shape(build(GLU(1), {4, 3}), {4, 3});
  expect_error<InvalidArgument>([] { UnitNormalization({.axis = {}}); }, "axis is empty");
  expect_error<InvalidArgument>([] { build(UnitNormalization({.axis = {-1, 1}}), {4}); }, "each once");
  expect_error<InvalidArgument>([] { build(RepeatVector(2), {4, 3}); }, "wanted [size]");
  expect_error<InvalidArgument>([] { build(GLU(), {3}); }, "an even dimension -1");
}

}  // namespace
}  // namespace cohort::volumes_test
