#include "cohort/train/layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cohort/error.h"
#include "cohort/strategy.h"
#include "tests/support/errors.h"
#include "tests/train/layer_checks.h"
#include "train/layers/sequential_module.h"

namespace cohort::layers_test {
namespace {

using testing::expect_error;

namespace F = torch::nn::functional;

using testing::build;
using testing::Built;
using testing::expect_close;
using testing::expect_shape;
using testing::random;

TEST(DenseTest, IsAnAffineMapWithActivation) {
  torch::manual_seed(1);
  const Built layer = build(Dense(4, Activation::kRelu), {3});
  expect_shape(layer, {3});
  const torch::Tensor x = random({5, 3});
  expect_close(layer(x), torch::relu(torch::matmul(x, layer["weight"].t()) + layer["bias"]));
  EXPECT_EQ(layer["weight"].sizes(), (torch::IntArrayRef{4, 3}));
  EXPECT_EQ(layer["bias"].abs().sum().item<double>(), 0.0);
  expect_shape(build(Dense(4, Activation::kRelu), {6, 3}), {6, 3});
  EXPECT_FALSE(build(Dense({.units = 2, .use_bias = false}), {3})["bias"].defined());
}

TEST(DenseTest, GradientIsThatOfThePlainOperations) {
  torch::manual_seed(2);
  const Built layer = build(Dense(4, Activation::kTanh), {3});
  const torch::Tensor x = random({5, 3});
  layer(x).pow(2).sum().backward();
  const torch::Tensor weight = layer["weight"].detach().clone().requires_grad_();
  torch::tanh(torch::matmul(x, weight.t())).pow(2).sum().backward();
  expect_close(layer["weight"].grad(), weight.grad());
}

TEST(DenseTest, RefusesWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { Dense(0); }, "units must be positive, got 0");
  expect_error<InvalidArgument>([] { build(Dense(2), {-1}); }, "it (Dense)");
  const Built layer = build(Dense(2), {3}, torch::kFloat);
  expect_error<InvalidArgument>([&] { layer(torch::ones({2, 4})); }, "[2, 4], wanted [batch, ..., 3]");
  expect_error<InvalidArgument>([&] { layer(torch::ones({2, 3}, torch::kByte)); }, "Rescaling");
}

TEST(InitializerTest, HaveTheirVariance) {
  torch::manual_seed(3);
  const auto deviation = [](Initializer::Kind kind, double limit) {
    torch::Tensor t = torch::empty({400, 300}, torch::kDouble);
    Initializer(kind).fill(t, 300, 400);
    EXPECT_LE(t.abs().max().item<double>(), limit);
    return t.std().item<double>();
  };
  const double glorot = std::sqrt(2.0 / 700.0), he = std::sqrt(2.0 / 300.0), lecun = std::sqrt(1.0 / 300.0);
  EXPECT_NEAR(deviation(Initializer::kGlorotUniform, std::sqrt(6.0 / 700.0)), glorot, 1e-3 * glorot * 5);
  EXPECT_NEAR(deviation(Initializer::kGlorotNormal, 2.0 * glorot / 0.8796), glorot, 1e-2 * glorot);
  EXPECT_NEAR(deviation(Initializer::kHeUniform, std::sqrt(6.0 / 300.0)), he, 1e-2 * he);
  EXPECT_NEAR(deviation(Initializer::kHeNormal, 2.0 * he / 0.8796), he, 1e-2 * he);
  EXPECT_NEAR(deviation(Initializer::kLecunUniform, std::sqrt(3.0 / 300.0)), lecun, 1e-2 * lecun);
  EXPECT_NEAR(deviation(Initializer::kLecunNormal, 2.0 * lecun / 0.8796), lecun, 1e-2 * lecun);
  const Built layer = build(
      Dense({.units = 2, .kernel_initializer = Initializer::kZeros, .bias_initializer = Initializer::kOnes}), {3});
  EXPECT_EQ(layer(random({1, 3})).sum().item<double>(), 2.0);
}

TEST(ActivationTest, SparsemaxIsAProjection) {
  // The largest two of the first row are above (1.089 + 0.599 - 1) / 2 = 0.344.
  const torch::Tensor x =
      torch::tensor({{-0.6, 0.34, 0.599, 1.089}, {3.0, 1.0, 0.0, 1.0}}, torch::kDouble).requires_grad_();
  const torch::Tensor y = Activation("sparsemax")(x);
  expect_close(y, torch::tensor({{0.0, 0.0, 0.255, 0.745}, {1.0, 0.0, 0.0, 0.0}}, torch::kDouble));
  (y * torch::tensor({1.0, 2.0, 3.0, 4.0}, torch::kDouble)).sum().backward();
  // Within the support the gradient less its mean: 3 - 3.5 and 4 - 3.5.
  expect_close(x.grad(), torch::tensor({{0.0, 0.0, -0.5, 0.5}, {0.0, 0.0, 0.0, 0.0}}, torch::kDouble));
}

TEST(ActivationTest, PiecewiseOnes) {
  const torch::Tensor x = torch::tensor({-2.0, -0.5, 0.25, 0.75, 3.0}, torch::kDouble);
  const auto expect = [&](const char* name, std::vector<double> wanted) {
    expect_close(Activation(name)(x), torch::tensor(wanted, torch::kDouble));
  };
  expect("sparse_plus", {0.0, 0.0625, 0.390625, 0.765625, 3.0});
  expect("sparse_sigmoid", {0.0, 0.25, 0.625, 0.875, 1.0});
  expect("hard_shrink", {-2.0, 0.0, 0.0, 0.75, 3.0});
  expect("hard_tanh", {-1.0, -0.5, 0.25, 0.75, 1.0});
  expect("hard_swish", {-2.0 / 6, -0.5 * 2.5 / 6, 0.25 * 3.25 / 6, 0.75 * 3.75 / 6, 3.0});
  expect_close(Activation("tanh_shrink")(x), x - torch::tanh(x));
}

TEST(ActivationTest, MatchesTheFunctional) {
  const torch::Tensor x = random({4, 6});
  expect_close(Activation(Activation::kLeakyRelu)(x), F::leaky_relu(x, F::LeakyReLUFuncOptions().negative_slope(0.2)));
  expect_close(Activation(Activation::kSoftmax)(x), F::softmax(x, -1));
  expect_close(Activation(Activation::kGelu)(x), F::gelu(x));
  expect_close(Activation(Activation::kSoftsign)(x), F::softsign(x));
  expect_close(Activation(Activation::kHardSigmoid)(x), F::relu6(x + 3) / 6);
  expect_close(Activation("double", [](const torch::Tensor& t) { return t * 2; })(x), x * 2);
  expect_close(build(Activation(Activation::kMish), {6})(x), F::mish(x));
  for (const char* name :
       {"linear", "relu", "relu6", "elu", "selu", "sigmoid", "tanh", "softplus", "silu", "exponential"}) {
    const Activation activation = Activation::parse(name);
    EXPECT_EQ(activation.name(), name);
    expect_close(activation.overwrite(x.clone()), activation(x));
  }
  expect_error<NotFound>([] { Activation::parse("rellu"); }, "no activation \"rellu\"");
}

TEST(Conv2DTest, ValidMatchesTheFunctional) {
  torch::manual_seed(4);
  const Built layer = build(Conv2D({.filters = 6, .kernel_size = {3, 2}, .strides = {2, 1}, .groups = 2}), {4, 9, 8});
  expect_shape(layer, {4, 9, 8});
  EXPECT_EQ(layer.output, (Shape{6, 4, 7}));
  const torch::Tensor x = random({2, 4, 9, 8});
  expect_close(layer(x),
               F::conv2d(x, layer["weight"], F::Conv2dFuncOptions().bias(layer["bias"]).stride({2, 1}).groups(2)));
  EXPECT_LE(layer["weight"].abs().max().item<double>(), std::sqrt(6.0 / (6.0 * 2.0 + 6.0 * 6.0)));
}

// TensorFlow pads after more than before: 6 wide, kernel 3, stride 2 -> one zero on the right, none on the left.
TEST(Conv2DTest, SamePadsAsTensorFlow) {
  const Built layer =
      build(Conv2D({.filters = 1, .kernel_size = 3, .strides = 2, .padding = Padding::kSame}), {1, 6, 6});
  EXPECT_EQ(layer.output, (Shape{1, 3, 3}));
  const torch::Tensor x = random({2, 1, 6, 6});
  expect_close(layer(x), F::conv2d(F::pad(x, F::PadFuncOptions({0, 1, 0, 1})), layer["weight"],
                                   F::Conv2dFuncOptions().bias(layer["bias"]).stride(2)));
  const Built dilated =
      build(Conv2D({.filters = 2, .kernel_size = 3, .padding = Padding::kSame, .dilation_rate = 2}), {1, 7, 7});
  expect_close(
      dilated(random({1, 1, 7, 7})).sizes() == torch::IntArrayRef({1, 2, 7, 7}) ? torch::ones(1) : torch::zeros(1),
      torch::ones(1));
}

TEST(Conv2DTest, PutsTheChannelsLastInFloat32) {
  torch::manual_seed(4);
  for (const int64_t channels : {1, 4}) {
    const Built layer = build(Conv2D(6, 3, Activation::kRelu), {channels, 9, 8}, torch::kFloat);
    EXPECT_EQ(layer["weight"].strides(), (std::vector<int64_t>{9 * channels, 1, 3 * channels, channels}));
    for (const int64_t batch : {5, 1, 0}) {
      const torch::Tensor x = torch::randn({batch, channels, 9, 8});
      const torch::Tensor weight = layer["weight"].detach().contiguous().requires_grad_();
      const torch::Tensor y = layer(x);
      const torch::Tensor expected = torch::relu(F::conv2d(x, weight, F::Conv2dFuncOptions().bias(layer["bias"])));
      expect_close(y, expected, 1e-5);
      EXPECT_TRUE(batch == 0 || y.strides()[1] == 1);
      torch::Tensor own = layer["weight"];
      own.mutable_grad() = torch::Tensor();
      y.sum().backward();
      expected.sum().backward();
      expect_close(own.grad(), weight.grad(), 1e-4);
    }
  }
}

TEST(Conv2DTest, TakesImagesWithoutChannels) {
  const Built layer = build(Conv2D(2, 3, Activation::kRelu), {28, 28});
  EXPECT_EQ(layer.output, (Shape{2, 26, 26}));
  const torch::Tensor x = random({3, 28, 28});
  expect_close(layer(x), layer(x.unsqueeze(1)));
  EXPECT_EQ(build(Conv2D(2, 3), {1, -1, -1}).output, (Shape{2, -1, -1}));
}

TEST(Conv2DTest, RefusesWhatDoesNotFit) {
  expect_error<InvalidArgument>([] { Conv2D({.filters = 3, .kernel_size = 3, .groups = 2}); }, "groups");
  expect_error<InvalidArgument>([] { Conv2D({.filters = 3}); }, "kernel_size must be positive, got 0 x 0");
  expect_error<InvalidArgument>([] { Conv2D({.filters = 3, .kernel_size = 3, .strides = 2, .dilation_rate = 2}); },
                                "both");
  expect_error<InvalidArgument>([] { build(Conv2D(3, 5), {1, 4, 4}); }, "at least 5 x 5");
  expect_error<InvalidArgument>([] { build(Conv2D(3, 5), {64}); }, "wanted [channels, height, width]");
  expect_error<InvalidArgument>(
      [] {
        build(Conv2D(3, 3), {1, 8, 8})(random({2, 3, 8, 8}));
      },
      "wanted [batch, 1, height, width]");
}

// A gradient in another layout than its activation has costs LibTorch's kernels ten times the time.
TEST(FlattenTest, TheGradientHasTheLayoutOfTheInput) {
  for (const Layer& layer : {Flatten(), Reshape({9, 20})}) {
    const Built flat = build(layer, {5, 6, 6});
    const torch::Tensor x = random({2, 5, 6, 6}).requires_grad_();
    const torch::Tensor weights = random({2, 180});
    for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      const torch::Tensor activation = x.tanh().contiguous(layout);
      const torch::Tensor loss = (flat(activation).reshape({2, 180}) * weights).sum();
      torch::Tensor came;
      activation.register_hook([&came](const torch::Tensor& gradient) { came = gradient; });
      loss.backward();
      EXPECT_TRUE(came.is_contiguous(layout)) << layout;
      expect_close(came, weights.reshape(x.sizes()));
    }
  }
}

TEST(PoolingTest, MatchesTheFunctional) {
  const torch::Tensor x = random({2, 3, 7, 7});
  const Built max = build(MaxPooling2D(), {3, 7, 7});
  expect_shape(max, {3, 7, 7});
  expect_close(max(x), F::max_pool2d(x, F::MaxPool2dFuncOptions(2)));
  const Built average = build(AveragePooling2D({.pool_size = 3, .strides = 2}), {3, 7, 7});
  expect_shape(average, {3, 7, 7});
  expect_close(average(x), F::avg_pool2d(x, F::AvgPool2dFuncOptions(3).stride(2)));
}

// Where both are one operation, the bias's gradient is added up in another order.
TEST(PoolingTest, BehindAConvolutionItGivesTheSameBitsAsOneByOne) {
  for (const Pooling2DOptions& pool : {Pooling2DOptions{}, Pooling2DOptions{.pool_size = 3, .strides = 1},
                                       Pooling2DOptions{.padding = Padding::kSame}}) {
    for (const torch::ScalarType dtype : {torch::kFloat, torch::kDouble}) {
      std::vector<Layer> layers = {Conv2D(6, 3, Activation::kRelu), MaxPooling2D(pool), Conv2D(4, 2, Activation::kTanh),
                                   MaxPooling2D(pool)};
      name_layers(layers);
      SequentialModule together(layers, {.input = {2, 12, 11}, .dtype = dtype, .input_dtype = dtype});
      const torch::Tensor x = torch::randn({5, 2, 12, 11}, dtype).requires_grad_();
      const torch::Tensor output = together.forward(x);
      torch::Tensor wanted = x;
      for (const auto& layer : together.layers()) wanted = layer->forward(wanted);
      EXPECT_TRUE(output.equal(wanted));
      std::vector<torch::Tensor> leaves = together.parameters();
      leaves.push_back(x);
      const torch::Tensor weights = torch::randn_like(output);
      const auto ours = torch::autograd::grad({(output * weights).sum()}, leaves);
      const auto theirs = torch::autograd::grad({(wanted * weights).sum()}, leaves);
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        const bool sum = dtype == torch::kFloat && leaves[i].dim() == 1;
        EXPECT_TRUE(sum ? ours[i].allclose(theirs[i]) : ours[i].equal(theirs[i])) << "leaf " << i;
      }
    }
  }
}

TEST(PoolingTest, PaddingTakesNoPart) {
  // Rows 1..3 and columns 1..3 of [[1,2,3],[4,5,6],[7,8,9]], pool 2, stride 2, same: one row and column of padding at
  // the end.
  const torch::Tensor x = torch::arange(1.0, 10.0, torch::kDouble).view({1, 1, 3, 3});
  const Pooling2DOptions same{.padding = Padding::kSame};
  const torch::Tensor wanted_max = torch::tensor({5.0, 6.0, 8.0, 9.0}, torch::kDouble).view({1, 1, 2, 2});
  const torch::Tensor wanted_mean = torch::tensor({3.0, 4.5, 7.5, 9.0}, torch::kDouble).view({1, 1, 2, 2});
  expect_close(build(MaxPooling2D(same), {1, 3, 3})(x), wanted_max);
  expect_close(build(MaxPooling2D(same), {1, 3, 3})(x - 100), wanted_max - 100);
  expect_close(build(AveragePooling2D(same), {1, 3, 3})(x), wanted_mean);
  expect_shape(build(AveragePooling2D(same), {1, 3, 3}), {1, 3, 3});
  // Evenly padded: pool 3, stride 1.
  const Built even = build(AveragePooling2D({.pool_size = 3, .strides = 1, .padding = Padding::kSame}), {1, 3, 3});
  EXPECT_DOUBLE_EQ(even(x)[0][0][0][0].item<double>(), 3.0);
}

TEST(PoolingTest, GlobalAverage) {
  const torch::Tensor x = random({2, 3, 4, 5});
  expect_close(build(GlobalAveragePooling2D(), {3, 4, 5})(x), x.mean(std::vector<int64_t>{2, 3}));
  expect_shape(build(GlobalAveragePooling2D({.keepdims = true}), {3, 4, 5}), {3, 4, 5});
}

TEST(ReshapingTest, KeepsTheElements) {
  expect_shape(build(Flatten(), {2, 3, 4}), {2, 3, 4});
  EXPECT_EQ(build(Flatten(), {}).output, (Shape{1}));
  EXPECT_EQ(build(Flatten(), {})(random({5})).sizes(), (torch::IntArrayRef{5, 1}));
  const Built reshape = build(Reshape({3, -1}), {2, 6});
  EXPECT_EQ(reshape.output, (Shape{3, 4}));
  expect_shape(reshape, {2, 6});
  expect_error<InvalidArgument>([] { Reshape({-1, -1}); }, "[?, ?]");
  expect_error<InvalidArgument>([] { build(Reshape({5}), {2, 6}); }, "as many elements as [5]");
  expect_error<InvalidArgument>([&] { reshape(random({2, 7})); }, "Reshape");
}

TEST(DropoutTest, DropsWhileTraining) {
  torch::manual_seed(5);
  const Built layer = build(Dropout(0.25), {10'000});
  const torch::Tensor x = torch::ones({2, 10'000}, torch::kDouble).requires_grad_();
  const torch::Tensor y = layer(x);
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.02);
  const torch::Tensor kept = y > 0;
  EXPECT_NEAR(kept.to(torch::kDouble).mean().item<double>(), 0.75, 0.02);
  expect_close(y, kept.to(torch::kDouble) / 0.75);
  y.sum().backward();
  expect_close(x.grad(), y.detach());
  layer.module->eval();
  expect_close(layer(x), x);
  expect_error<InvalidArgument>([] { Dropout(1.0); }, "rate must be in [0, 1), got 1");
}

TEST(DropoutTest, ReplicasDrawTheirOwnAndRepeatably) {
  const MirroredStrategy strategy({.devices = cpu_devices(2)});
  const auto layer = strategy.mirror([] { return build(Dropout(0.5), {64}).module; });
  const auto draw = [&] {
    strategy.set_seed(7);
    return strategy.run([&](Replica& replica) { return layer[replica]->forward(torch::ones({8, 64})); });
  };
  const auto one = draw(), two = draw();
  EXPECT_TRUE(torch::equal(one[0], two[0]));
  EXPECT_TRUE(torch::equal(one[1], two[1]));
  EXPECT_FALSE(torch::equal(one[0], one[1]));
}

TEST(EmbeddingTest, LooksUpRows) {
  const Built layer = build(Embedding(10, 4), {3});
  EXPECT_EQ(layer.output, (Shape{3, 4}));
  EXPECT_LE(layer["weight"].abs().max().item<double>(), 0.05);
  const torch::Tensor x = torch::tensor({{1, 9, 0}}, torch::kLong);
  expect_close(layer(x)[0][1], layer["weight"][9]);
  expect_close(layer(x.to(torch::kShort)), layer(x));
  EXPECT_EQ(layer(torch::zeros({0, 3}, torch::kLong)).sizes(), (torch::IntArrayRef{0, 3, 4}));
  expect_error<InvalidArgument>([&] { layer(torch::tensor({{10}}, torch::kLong)); }, "indices from 0 to 9");
  expect_error<InvalidArgument>([&] { layer(torch::ones({1, 3})); }, "wanted integers");
}

TEST(SequentialModuleTest, NamesItsLayers) {
  std::vector<Layer> layers = {Flatten(), Dense(8, Activation::kRelu), Dense(4).named("head"), Dense(3),
                               Activation(Activation::kSoftmax)};
  name_layers(layers);
  std::vector<std::string> names;
  for (const Layer& layer : layers) names.push_back(layer.name());
  EXPECT_EQ(names, (std::vector<std::string>{"flatten", "dense", "head", "dense_1", "activation"}));
  const BuildContext context{.input = {2, 3}};
  SequentialModule module(layers, context);
  std::vector<std::string> parameters;
  for (const auto& item : module.named_parameters()) parameters.push_back(item.key());
  EXPECT_EQ(parameters, (std::vector<std::string>{"dense.weight", "dense.bias", "head.weight", "head.bias",
                                                  "dense_1.weight", "dense_1.bias"}));
  EXPECT_EQ(module.forward(torch::ones({5, 2, 3})).sizes(), (torch::IntArrayRef{5, 3}));
  EXPECT_EQ(output_shapes(layers, context)[1], (Shape{8}));
}

TEST(SequentialModuleTest, NamesAreUnique) {
  std::vector<Layer> taken = {Dense(3).named("dense_1"), Dense(3), Dense(3)};
  name_layers(taken);
  EXPECT_EQ(taken[1].name(), "dense");
  EXPECT_EQ(taken[2].name(), "dense_2");
  std::vector<Layer> twice = {Dense(3).named("a"), Dense(3).named("a")};
  expect_error<InvalidArgument>([&] { name_layers(twice); }, "two layers are named \"a\"");
  expect_error<InvalidArgument>([] { Dense(3).named("a.b"); }, "no dot");
}

}  // namespace
}  // namespace cohort::layers_test
