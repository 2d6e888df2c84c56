// The convolutions beside Conv2D, and the layers that change the size of images.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "base/libtorch_compat.h"
#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "tests/support/errors.h"
#include "tests/support/poisoned_memory.h"
#include "tests/train/layer_checks.h"

namespace cohort::convolution_layers_test {
namespace {

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_error;
using testing::expect_shape;
using testing::random;

namespace F = torch::nn::functional;

// The layer's output and the gradients of its parameters and input are those of the function.
void expect_same(const Built& layer, const torch::Tensor& x,
                 const std::function<torch::Tensor(const torch::Tensor&)>& function) {
  std::vector<torch::Tensor> inputs = layer.module->parameters();
  inputs.push_back(x);
  x.requires_grad_();
  const torch::Tensor y = layer(x);
  const torch::Tensor wanted = function(x);
  expect_close(y, wanted);
  const torch::Tensor weights = torch::randn_like(y);
  const auto ours = torch::autograd::grad({(y * weights).sum()}, inputs);
  const auto theirs = torch::autograd::grad({(wanted * weights).sum()}, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) expect_close(ours[i], theirs[i], 1e-10);
}

TEST(DepthwiseConv2DTest, ConvolvesEachChannelByItself) {
  const Built layer =
      build(DepthwiseConv2D({.kernel_size = 3, .padding = Padding::kSame, .depth_multiplier = 2}), {3, 5, 5});
  expect_shape(layer, {3, 5, 5});
  const torch::Tensor x = random({2, 3, 5, 5});
  EXPECT_EQ(layer["weight"].sizes(), (torch::IntArrayRef{6, 1, 3, 3}));
  const torch::Tensor first =
      F::conv2d(x.slice(1, 0, 1), layer["weight"].slice(0, 0, 2), F::Conv2dFuncOptions().padding(1));
  expect_close(layer(x).slice(1, 0, 2), first);
}

TEST(Conv1DTest, MatchesTheFunctional) {
  torch::manual_seed(1);
  const Built layer =
      build(Conv1D({.filters = 6, .kernel_size = 3, .strides = 2, .groups = 2, .activation = "tanh"}), {4, 11});
  expect_shape(layer, {4, 11});
  expect_same(layer, random({2, 4, 11}), [&](const torch::Tensor& x) {
    return torch::tanh(F::conv1d(x, layer["weight"], F::Conv1dFuncOptions().bias(layer["bias"]).stride(2).groups(2)));
  });
  expect_shape(build(Conv1D({.filters = 2, .kernel_size = 4, .padding = Padding::kSame}), {3, 9}), {3, 9});
}

TEST(Conv1DTest, CausalOutputsSeeNoLaterInput) {
  const Built layer =
      build(Conv1D({.filters = 2, .kernel_size = 3, .padding = Padding::kCausal, .dilation_rate = 2}), {3, 8});
  expect_shape(layer, {3, 8});
  const torch::Tensor x = random({1, 3, 8});
  torch::Tensor later = x.clone();
  later.slice(2, 5).fill_(9.0);
  expect_close(layer(x).slice(2, 0, 5), layer(later).slice(2, 0, 5));
  expect_same(layer, x, [&](const torch::Tensor& y) {
    return F::conv1d(F::pad(y, F::PadFuncOptions({4, 0})), layer["weight"],
                     F::Conv1dFuncOptions().bias(layer["bias"]).dilation(2));
  });
}

TEST(Conv3DTest, MatchesTheFunctional) {
  torch::manual_seed(2);
  const Built layer = build(Conv3D({.filters = 4, .kernel_size = {2, 3, 3}, .strides = {1, 2, 2}}), {2, 4, 7, 7});
  expect_shape(layer, {2, 4, 7, 7});
  expect_same(layer, random({2, 2, 4, 7, 7}), [&](const torch::Tensor& x) {
    return F::conv3d(x, layer["weight"], F::Conv3dFuncOptions().bias(layer["bias"]).stride({1, 2, 2}));
  });
  expect_shape(build(Conv3D({.filters = 1, .kernel_size = 2, .padding = Padding::kSame}), {1, 3, 5, 4}), {1, 3, 5, 4});
}

TEST(SeparableConv2DTest, IsADepthwiseAndAPointwiseOne) {
  torch::manual_seed(3);
  const Built layer = build(SeparableConv2D({.filters = 5, .kernel_size = 3, .depth_multiplier = 2}), {3, 8, 7});
  expect_shape(layer, {3, 8, 7});
  EXPECT_EQ(layer["depthwise_weight"].sizes(), (torch::IntArrayRef{6, 1, 3, 3}));
  expect_same(layer, random({2, 3, 8, 7}), [&](const torch::Tensor& x) {
    const torch::Tensor inner = F::conv2d(x, layer["depthwise_weight"], F::Conv2dFuncOptions().groups(3));
    return F::conv2d(inner, layer["pointwise_weight"], F::Conv2dFuncOptions().bias(layer["bias"]));
  });
}

TEST(Conv2DTransposeTest, HasKerasSizes) {
  torch::manual_seed(4);
  const Built plain = build(Conv2DTranspose({.filters = 3, .kernel_size = 4, .strides = 2}), {2, 5, 6});
  expect_shape(plain, {2, 5, 6});
  expect_same(plain, random({2, 2, 5, 6}), [&](const torch::Tensor& x) {
    return F::conv_transpose2d(x, plain["weight"], F::ConvTranspose2dFuncOptions().bias(plain["bias"]).stride(2));
  });
  const auto size = [](const Conv2DTransposeOptions& options) {
    const Built layer = build(Conv2DTranspose(options), {2, 5, 6});
    expect_shape(layer, {2, 5, 6});
    return layer.output;
  };
  EXPECT_EQ(size({.filters = 1, .kernel_size = 3, .strides = 2, .padding = Padding::kSame}), (Shape{1, 10, 12}));
  EXPECT_EQ(size({.filters = 1, .kernel_size = 2, .strides = 3}), (Shape{1, 15, 18}));
  EXPECT_EQ(size({.filters = 1, .kernel_size = 3, .strides = 2, .output_padding = 1}), (Shape{1, 12, 14}));
  EXPECT_EQ(size({.filters = 1, .kernel_size = 3, .strides = 2, .padding = Padding::kSame, .output_padding = 1}),
            (Shape{1, 10, 12}));
  EXPECT_EQ(size({.filters = 1, .kernel_size = 3, .dilation_rate = 2}), (Shape{1, 9, 10}));
}

// Convolutions that oneDNN computes wrongly in bfloat16: images narrower than the stride, groups with unlike strides,
// dilation of transposed ones, volumes.
struct HalfCase {
  const char* name;
  Layer layer;
  Shape input;
};

std::vector<HalfCase> half_cases() {
  const Padding same = Padding::kSame;
  return {
      {"narrow", Conv2D({.filters = 32, .kernel_size = 3, .strides = 2, .padding = same}), {32, 5, 1}},
      {"narrow, relu", Conv2D({.filters = 4, .kernel_size = 1, .strides = 2, .activation = "relu"}), {32, 2, 1}},
      {"sequence", Conv1D({.filters = 32, .kernel_size = 3, .strides = 3, .padding = same}), {8, 2}},
      {"groups", DepthwiseConv2D({.kernel_size = {1, 3}, .strides = {1, 3}, .depth_multiplier = 2}), {32, 4, 3}},
      {"transposed", Conv2DTranspose({.filters = 4, .kernel_size = 1, .strides = 3}), {8, 5, 1}},
      {"one channel", Conv2DTranspose({.filters = 1, .kernel_size = 3}), {1, 5, 4}},
      {"dilated", Conv2DTranspose({.filters = 4, .kernel_size = 3, .dilation_rate = 2}), {8, 4, 5}},
      {"volume", Conv3D({.filters = 16, .kernel_size = 3, .strides = {1, 2, 2}, .padding = same}), {3, 2, 3, 5}},
  };
}

// Returns the output, then the gradients of the input and of the parameters.
std::vector<torch::Tensor> trained_once(const Built& layer, const torch::Tensor& x) {
  const torch::Tensor leaf = x.detach().requires_grad_();
  const torch::Tensor y = layer(leaf);
  y.backward(torch::ones_like(y));
  std::vector<torch::Tensor> results = {y, leaf.grad()};
  for (const torch::Tensor& parameter : layer.module->parameters()) results.push_back(parameter.grad());
  return results;
}

TEST(HalfConvolutionTest, ComputesWhatFloat64Does) {
  for (const HalfCase& each : half_cases()) {
    for (const bool autocast : {false, true}) {
      for (int channels_last = 0; channels_last < (each.input.size() == 3 ? 2 : 1); ++channels_last) {
        torch::manual_seed(1);
        Built exact = build(each.layer, each.input);
        Built half = build(each.layer, each.input, autocast ? torch::kFloat : torch::kBFloat16);
        {
          const torch::NoGradGuard no_grad;
          const std::vector<torch::Tensor> from = exact.module->parameters();
          std::vector<torch::Tensor> to = half.module->parameters();
          for (std::size_t i = 0; i < from.size(); ++i) from[i].copy_(from[i].to(torch::kBFloat16));
          for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
        }
        Shape shape = each.input;
        shape.insert(shape.begin(), 2);
        torch::Tensor x = random(shape).to(torch::kBFloat16);
        if (channels_last != 0) x = x.contiguous(at::MemoryFormat::ChannelsLast);
        const std::vector<torch::Tensor> wanted = trained_once(exact, x.to(torch::kDouble).contiguous());
        const testing::PoisonedMemory poisoned;
        std::optional<compat::Autocast> scope;
        if (autocast) scope.emplace(c10::DeviceType::CPU, torch::kBFloat16);
        const std::vector<torch::Tensor> found = trained_once(half, x);
        EXPECT_TRUE(autocast || found[0].scalar_type() == torch::kBFloat16);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(found[i].sizes(), wanted[i].sizes()) << each.name;
          EXPECT_TRUE(torch::allclose(found[i].to(torch::kDouble), wanted[i], 0.05, 0.1))
              << each.name << ", result " << i << ", autocast " << autocast << ", channels last " << channels_last;
        }
      }
    }
  }
}

TEST(ResamplingTest, GrowsAndCutsImages) {
  const torch::Tensor x = random({2, 3, 4, 5});
  const Built nearest = build(UpSampling2D({.size = {2, 3}}), {3, 4, 5});
  expect_shape(nearest, {3, 4, 5});
  expect_close(nearest(x), x.repeat_interleave(2, 2).repeat_interleave(3, 3));
  expect_shape(build(UpSampling2D({.interpolation = UpSampling2DOptions::Interpolation::kBilinear}), {3, 4, 5}),
               {3, 4, 5});
  const Built padded = build(ZeroPadding2D({1, 0, 2, 1}), {3, 4, 5});
  expect_shape(padded, {3, 4, 5});
  expect_close(padded(x), F::pad(x, F::PadFuncOptions({2, 1, 1, 0})));
  const Built cropped = build(Cropping2D({1, 2}), {3, 4, 5});
  expect_shape(cropped, {3, 4, 5});
  expect_close(cropped(x), x.slice(2, 1, 3).slice(3, 2, 3));
  const Built largest = build(GlobalMaxPooling2D(), {3, 4, 5});
  expect_shape(largest, {3, 4, 5});
  expect_close(largest(x), std::get<0>(x.flatten(2).max(2)));
  expect_shape(build(GlobalMaxPooling2D({.keepdims = true}), {3, 4, 5}), {3, 4, 5});
  const Built permuted = build(Permute({2, 3, 1}), {3, 4, 5});
  expect_shape(permuted, {3, 4, 5});
  expect_close(permuted(x), x.permute({0, 2, 3, 1}));
}

TEST(ResamplingTest, FindsThePlacesInLargeImagesOfBfloat16) {
  const torch::Tensor x = torch::arange(300, torch::kDouble).remainder(199).expand({1, 2, 2, 300});
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    for (const auto how :
         {UpSampling2DOptions::Interpolation::kNearest, UpSampling2DOptions::Interpolation::kBilinear}) {
      const Built layer = build(UpSampling2D({.size = {1, 3}, .interpolation = how}), {2, 2, 300});
      const torch::Tensor half = x.to(torch::kBFloat16).contiguous(format).requires_grad_();
      const torch::Tensor exact = x.contiguous().requires_grad_();
      const torch::Tensor y = layer(half), wanted = layer(exact);
      EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
      expect_close(y.to(torch::kDouble), wanted, 0.5);
      y.sum().backward();
      wanted.sum().backward();
      expect_close(half.grad().to(torch::kDouble), exact.grad(), 0.02);
    }
  }
}

TEST(Pooling1DTest, MatchesTheFunctional) {
  const torch::Tensor x = random({2, 3, 7});
  const Built largest = build(MaxPooling1D({.pool_size = 3, .strides = 2}), {3, 7});
  expect_shape(largest, {3, 7});
  expect_close(largest(x), F::max_pool1d(x, F::MaxPool1dFuncOptions(3).stride(2)));
  const Built mean = build(AveragePooling1D(), {3, 7});
  expect_shape(mean, {3, 7});
  expect_close(mean(x), F::avg_pool1d(x, F::AvgPool1dFuncOptions(2)));
  const Built same = build(AveragePooling1D({.pool_size = 4, .strides = 1, .padding = Padding::kSame}), {3, 7});
  expect_shape(same, {3, 7});
  expect_close(same(x).select(2, 0), x.slice(2, 0, 3).mean(2));
  expect_shape(build(MaxPooling1D({.pool_size = 4, .padding = Padding::kSame}), {3, 7}), {3, 7});
  expect_error<InvalidArgument>([] { MaxPooling1D({.pool_size = 0}); }, "pool_size must be positive");
  expect_error<InvalidArgument>([] { build(MaxPooling1D({.pool_size = 9}), {3, 7}); }, "at least 9");
}

TEST(GlobalPooling1DTest, LeavesMaskedStepsOut) {
  const torch::Tensor x = random({2, 5, 3});
  const torch::Tensor mask = torch::tensor({{1, 1, 1, 0, 0}, {1, 0, 1, 0, 1}}).to(torch::kBool);
  const torch::Tensor second = x[1].index_select(0, torch::tensor({0, 2, 4}));
  const Built mean = build(GlobalAveragePooling1D(), {5, 3});
  expect_shape(mean, {5, 3});
  expect_close(mean(x), x.mean(1));
  expect_close(mean.module->forward_masked(x, mask), torch::stack({x[0].slice(0, 0, 3).mean(0), second.mean(0)}));
  const Built largest = build(GlobalMaxPooling1D(), {5, 3});
  expect_shape(largest, {5, 3});
  expect_close(largest.module->forward_masked(x, mask), torch::stack({x[0].slice(0, 0, 3).amax(0), second.amax(0)}));
  for (const bool keeps : {false, true}) {
    const Built first = build(GlobalMaxPooling1D({.channels_first = true, .keepdims = keeps}), {5, 3});
    expect_shape(first, {5, 3});
    expect_close(first(x), x.amax(2, keeps));
  }
}

TEST(ConvolutionLayersTest, RefuseWhatMakesNoSense) {
  expect_error<InvalidArgument>([] { Conv1D({.kernel_size = 3}); }, "filters must be positive");
  expect_error<InvalidArgument>([] { Conv1D({.filters = 2}); }, "kernel_size must be positive, got 0");
  expect_error<InvalidArgument>([] { Conv3D({.filters = 1, .kernel_size = 2, .strides = 2, .dilation_rate = 2}); },
                                "cannot both be above 1");
  expect_error<InvalidArgument>([] { Conv2D({.filters = 1, .kernel_size = 2, .padding = Padding::kCausal}); },
                                "kCausal is Conv1D's");
  expect_error<InvalidArgument>([] { MaxPooling2D({.padding = Padding::kCausal}); }, "kCausal is Conv1D's");
  expect_error<InvalidArgument>([] { Conv2DTranspose({.filters = 1, .kernel_size = 2, .output_padding = 1}); },
                                "output_padding must be 0 or more and below the strides");
  expect_error<InvalidArgument>([] { build(Conv1D({.filters = 2, .kernel_size = 9}), {3, 8}); }, "at least 9");
  expect_error<InvalidArgument>([] { build(Cropping2D(3), {3, 4, 9}); }, "images of more than 6 x 6");
  expect_error<InvalidArgument>([] { UpSampling2D({.size = 0}); }, "size must be positive");
  expect_error<InvalidArgument>([] { ZeroPadding2D(-1); }, "0 or more, got -1");
  expect_error<InvalidArgument>([] { Permute({1, 3}); }, "the numbers from 1 on");
  expect_error<InvalidArgument>(
      [] {
        build(SeparableConv2D({.filters = 2, .kernel_size = 3}), {-1, 8, 8});
      },
      "a number of channels that is known");
}

}  // namespace
}  // namespace cohort::convolution_layers_test
