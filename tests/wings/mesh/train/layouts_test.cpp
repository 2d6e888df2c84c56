// Layers compute the same whatever the layouts of their input and of the gradient are. Some operations of LibTorch do
// not: they leave memory unwritten, or mistake one layout for another (docs/installing.md).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <functional>

#include "cohort/train/layers.h"
#include "tests/support/poisoned_memory.h"
#include "tests/train/layer_checks.h"

namespace cohort::layouts_test {
namespace {

using testing::build;
using testing::Built;
using testing::PoisonedMemory;
using torch::Tensor;

enum class Laid { kContiguous, kChannelsLast, kTurned, kSpread, kExpanded };
constexpr std::array kOfInputs = {Laid::kContiguous, Laid::kChannelsLast, Laid::kTurned};
constexpr std::array kOfGradients = {Laid::kContiguous, Laid::kChannelsLast, Laid::kTurned, Laid::kSpread,
                                     Laid::kExpanded};

// Returns the numbers in a layout. An expanded tensor is the gradient of a sum: one number for all elements.
Tensor laid_out(const Tensor& numbers, Laid how) {
  switch (how) {
    case Laid::kChannelsLast:
      return numbers.movedim(1, -1).contiguous().movedim(-1, 1);
    case Laid::kTurned:
      return numbers.transpose(0, -1).contiguous().transpose(0, -1);
    case Laid::kSpread:
      return torch::stack({numbers, numbers}, -1).select(-1, 0);
    case Laid::kExpanded:
      return numbers.flatten()[0].expand(numbers.sizes());
    default:
      return numbers.contiguous();
  }
}

struct Computed {
  Tensor output;
  std::vector<Tensor> gradients;  // of the input, then of the parameters
};

Computed compute(torch::nn::Module& module, const std::function<Tensor(const Tensor&)>& forward, const Tensor& x,
                 Laid input, const Tensor& numbers, Laid gradient) {
  const Tensor leaf = laid_out(x, input).detach().requires_grad_();
  for (Tensor& parameter : module.parameters()) parameter.mutable_grad() = Tensor();
  Computed result{.output = forward(leaf)};
  result.output.backward(laid_out(numbers, gradient));
  result.gradients.push_back(leaf.grad());
  for (const Tensor& parameter : module.parameters()) result.gradients.push_back(parameter.grad());
  return result;
}

bool agree(const Tensor& ours, const Tensor& exact) {
  return torch::allclose(ours.to(torch::kDouble).contiguous(), exact.contiguous(), 1e-3, 2e-4);
}

std::string apart(const Computed& ours, const Computed& exact) {
  if (!agree(ours.output, exact.output)) return "the output";
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    if (!agree(ours.gradients[i], exact.gradients[i])) return c10::str("gradient ", i);
  }
  return "";
}

// A module with the function that is its forward.
struct Called {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensor(const Tensor&)> forward;
};
using Maker = std::function<Called(const Shape& input, torch::ScalarType dtype)>;

Maker of(const Layer& layer) {
  return [layer](const Shape& input, torch::ScalarType dtype) {
    const Built built = build(layer, input, dtype);
    return Called{built.module, [built](const Tensor& x) { return built(x); }};
  };
}

// Compares all mixes of layouts in float32 and memory full of NaN with contiguous float64.
void expect_any_layout(const std::string& what, const Maker& make, const std::vector<int64_t>& shape) {
  torch::manual_seed(3);
  const Shape input(shape.begin() + 1, shape.end());
  const Called exact = make(input, torch::kDouble), ours = make(input, torch::kFloat);
  {
    const torch::NoGradGuard no_grad;
    const std::vector<Tensor> from = exact.module->parameters();
    std::vector<Tensor> to = ours.module->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i].normal_().to(torch::kFloat));
    for (std::size_t i = 0; i < from.size(); ++i) from[i].copy_(to[i]);
  }
  const Tensor x = torch::randn(shape, torch::kFloat);
  const Tensor g = torch::randn(exact.forward(x.to(torch::kDouble)).sizes(), torch::kFloat);
  for (const Laid gradient : kOfGradients) {
    const Computed wanted = compute(*exact.module, exact.forward, x.to(torch::kDouble), Laid::kContiguous,
                                    laid_out(g, gradient).to(torch::kDouble).contiguous(), Laid::kContiguous);
    for (const Laid layout : kOfInputs) {
      const PoisonedMemory poisoned;
      const Computed found = compute(*ours.module, ours.forward, x, layout, g, gradient);
      EXPECT_EQ(apart(found, wanted), "")
          << what << " of " << torch::IntArrayRef(shape) << ", layout of the input " << static_cast<int>(layout)
          << ", of the gradient " << static_cast<int>(gradient);
    }
  }
}

void expect_any_layout_of_images(const std::string& what, const Maker& make) {
  for (const int64_t batch : {1, 3}) {
    for (const int64_t channels : {1, 3, 8}) {
      for (const auto& [height, width] : {std::pair(1, 1), {1, 2}, {1, 9}, {2, 1}, {5, 1}, {2, 3}, {5, 4}}) {
        expect_any_layout(what, make, {batch, channels, height, width});
      }
    }
  }
}

TEST(LayoutsTest, Activations) {
  for (const char* name : {"linear",      "relu",           "relu6",        "leaky_relu",  "elu",        "selu",
                           "gelu",        "sigmoid",        "celu",         "hard_silu",   "hard_tanh",  "hard_shrink",
                           "softmax",     "log_softmax",    "hard_sigmoid", "softplus",    "softsign",   "silu",
                           "mish",        "exponential",    "soft_shrink",  "tanh_shrink", "squareplus", "log_sigmoid",
                           "sparse_plus", "sparse_sigmoid", "sparsemax",    "tanh"}) {
    expect_any_layout_of_images(name, of(Activation(name)));
    expect_any_layout(name, of(Activation(name)), {3, 17});
    expect_any_layout(name, of(Activation(name)), {3, 5, 4});
    expect_any_layout(name, of(Activation(name)), {2, 3, 4, 2, 3});
  }
}

TEST(LayoutsTest, Normalization) {
  expect_any_layout_of_images("layer norm", of(LayerNormalization()));
  expect_any_layout_of_images("layer norm of images", of(LayerNormalization({.dimensions = 3})));
  expect_any_layout_of_images("RMS norm", of(RMSNormalization()));
  expect_any_layout_of_images("group norm", of(GroupNormalization({.groups = 1})));
  expect_any_layout_of_images("instance norm", of(GroupNormalization({.groups = -1})));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 3}, {3, 4, 5}, {2, 3, 4, 2, 3}, {1, 3, 1, 2, 4}}) {
    expect_any_layout("batch norm", of(BatchNormalization()), shape);
    expect_any_layout("batch norm of the last dimension", of(BatchNormalization({.axis = -1})), shape);
  }
}

TEST(LayoutsTest, BatchNormOfImages) {
  expect_any_layout_of_images("batch norm", of(BatchNormalization()));
  expect_any_layout_of_images("frozen batch norm", [](const Shape& input, torch::ScalarType dtype) {
    const Built built = build(BatchNormalization(), input, dtype);
    built.module->set_frozen(true);
    return Called{built.module, [built](const Tensor& x) { return built(x); }};
  });
}

TEST(LayoutsTest, Windows) {
  const Padding same = Padding::kSame;
  expect_any_layout_of_images("max pooling", of(MaxPooling2D({.pool_size = 2, .padding = same})));
  expect_any_layout_of_images("max pooling by one", of(MaxPooling2D({.pool_size = 3, .strides = 1, .padding = same})));
  expect_any_layout_of_images("mean pooling", of(AveragePooling2D({.pool_size = 2, .padding = same})));
  expect_any_layout_of_images("means of all", of(GlobalAveragePooling2D()));
  expect_any_layout_of_images("largest of all", of(GlobalMaxPooling2D()));
  expect_any_layout_of_images("up-sampling", of(UpSampling2D()));
  expect_any_layout_of_images("padding", of(ZeroPadding2D(1)));
  for (const int64_t size : {1, 2, 3}) {
    expect_any_layout_of_images("convolution", of(Conv2D({.filters = 4, .kernel_size = size, .padding = same})));
    expect_any_layout_of_images("convolution by channel",
                                of(DepthwiseConv2D({.kernel_size = size, .padding = same, .depth_multiplier = 2})));
    expect_any_layout_of_images("separable convolution",
                                of(SeparableConv2D({.filters = 4, .kernel_size = size, .padding = same})));
    expect_any_layout_of_images("transposed convolution",
                                of(Conv2DTranspose({.filters = 4, .kernel_size = size, .padding = same})));
  }
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1, 3, 1}, {1, 1, 4}, {3, 8, 2}, {2, 3, 7}}) {
    expect_any_layout("max pooling", of(MaxPooling1D({.pool_size = 2, .padding = same})), shape);
    expect_any_layout("mean pooling", of(AveragePooling1D({.pool_size = 2, .padding = same})), shape);
    expect_any_layout("convolution", of(Conv1D({.filters = 4, .kernel_size = 2, .padding = same})), shape);
  }
}

}  // namespace
}  // namespace cohort::layouts_test
