// Layers whose channels come last do what they do with the channels first.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cohort/error.h"
#include "cohort/train/layers.h"
#include "cohort/train/model.h"

namespace cohort::testing::channels_last_test {
namespace {

// Compares outputs and gradients of both forms of a layer on x, [batch, channels, ...].
void expect_same(const Layer& layer, const torch::Tensor& x) {
  Sequential first({layer}, {.dtype = torch::kDouble});
  Sequential last({ChannelsLast(layer)}, {.dtype = torch::kDouble});
  const torch::Tensor turned = x.movedim(1, -1).contiguous();
  first.build(x.sizes().slice(1).vec());
  last.build(turned.sizes().slice(1).vec());
  if (!first.weights().empty()) last.set_weights(first.weights());
  const torch::Tensor a = x.clone().requires_grad_(), b = turned.clone().requires_grad_();
  const torch::Tensor y = first(a, {.training = true});
  torch::Tensor z = last(b, {.training = true});
  EXPECT_EQ(last.layers().front().output_shape(), z.sizes().slice(1).vec());
  if (z.dim() > 2) z = z.movedim(-1, 1);
  ASSERT_EQ(y.sizes(), z.sizes());
  EXPECT_TRUE(torch::allclose(y, z, 1e-12, 1e-12));
  y.square().sum().backward();
  z.square().sum().backward();
  EXPECT_TRUE(torch::allclose(a.grad().movedim(1, -1), b.grad(), 1e-10, 1e-10));
  const auto wanted = first.trainable_variables(), got = last.trainable_variables();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_TRUE(torch::allclose(wanted[i].grad(), got[i].grad(), 1e-10, 1e-10));
  }
}

TEST(ChannelsLast, IsTheSameLayer) {
  torch::manual_seed(1);
  const torch::Tensor sequence = torch::randn({2, 4, 9}, torch::kDouble);
  const torch::Tensor image = torch::randn({2, 4, 6, 5}, torch::kDouble);
  const torch::Tensor volume = torch::randn({2, 2, 4, 3, 5}, torch::kDouble);
  expect_same(Conv1D({.filters = 3, .kernel_size = 2, .padding = Padding::kCausal}), sequence);
  expect_same(Conv1DTranspose({.filters = 3, .kernel_size = 2}), sequence);
  expect_same(MaxPooling1D(), sequence);
  expect_same(AveragePooling1D({.padding = Padding::kSame}), sequence);
  expect_same(UpSampling1D(2), sequence);
  expect_same(Conv2D({.filters = 3, .kernel_size = 2, .activation = "elu"}), image);
  expect_same(DepthwiseConv2D({.kernel_size = 2, .depth_multiplier = 2}), image);
  expect_same(SeparableConv2D({.filters = 3, .kernel_size = 2}), image);
  expect_same(Conv2DTranspose({.filters = 3, .kernel_size = 2, .strides = 2}), image);
  expect_same(MaxPooling2D(), image);
  expect_same(AveragePooling2D({.padding = Padding::kSame}), image);
  expect_same(GlobalAveragePooling2D(), image);
  expect_same(GlobalMaxPooling2D({.keepdims = true}), image);
  expect_same(UpSampling2D({.size = {1, 2}}), image);
  expect_same(ZeroPadding2D({1, 2, 0, 1}), image);
  expect_same(Cropping2D({1, 2, 0, 1}), image);
  expect_same(GroupNormalization({.groups = 2}), image);
  expect_same(Conv3D({.filters = 3, .kernel_size = 2}), volume);
  expect_same(MaxPooling3D(), volume);
}

// Softmaxes are over the last dimension of what the layer returns.
TEST(ChannelsLast, AppliesActivationsToItsOwnOutput) {
  Sequential model{ChannelsLast(Conv2D({.filters = 3, .kernel_size = 2}), "softmax")};
  model.build({5, 4, 2});
  const torch::Tensor sums = model.predict(torch::randn({2, 5, 4, 2})).sum(-1);
  EXPECT_TRUE(torch::allclose(sums, torch::ones_like(sums)));
}

TEST(ChannelsLast, WantsTheChannels) {
  Sequential model{ChannelsLast(Conv2D({.filters = 3, .kernel_size = 2, .name = "conv"}))};
  EXPECT_EQ(model.layers().front().name(), "conv");
  EXPECT_THROW(model.build({5, 4}), InvalidArgument);
  model.build({5, 4, 2});
  EXPECT_THROW(model.predict(torch::zeros({1, 2, 5, 4})), InvalidArgument);
}

TEST(ChannelsLast, TakesBatchesOfNoExamples) {
  Sequential model{ChannelsLast(Conv2D({.filters = 3, .kernel_size = 2}))};
  model.build({5, 4, 2});
  EXPECT_EQ(model(torch::zeros({0, 5, 4, 2})).sizes(), (std::vector<int64_t>{0, 4, 3, 3}));
}

// A batch norm's statistics would not be found within.
TEST(ChannelsLast, GoesAroundLayersWithoutStatistics) {
  Sequential model{ChannelsLast(BatchNormalization())};
  EXPECT_THROW(model.build({5, 4, 2}), InvalidArgument);
}

TEST(ChannelsLast, KeepsToConstraints) {
  Sequential model{ChannelsLast(Conv2D({.filters = 3, .kernel_size = 2, .kernel_constraint = NonNeg{}})),
                   ChannelsLast(GlobalAveragePooling2D())};
  model.build({5, 4, 2});
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = MeanSquaredError()});
  model.train_on_batch({torch::ones({2, 5, 4, 2}), torch::full({2, 3}, -10.0)});
  const torch::Tensor weight = model.weights().front().second;
  EXPECT_EQ(weight.min().item<float>(), 0.0F);
}

}  // namespace
}  // namespace cohort::testing::channels_last_test
