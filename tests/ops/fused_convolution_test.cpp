// The convolution with bias, ReLU and pooling as one operation, held to LibTorch's.
#include "ops/fused_convolution.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <optional>
#include <thread>

#include "base/cpu_threads.h"
#include "base/libtorch_compat.h"
#include "base/parallel.h"
#include "train/layers/support.h"

namespace cohort::fused_convolution_test {
namespace {

constexpr at::MemoryFormat kLast = at::MemoryFormat::ChannelsLast;

struct Case {
  torch::Tensor x, weight, bias;
  Window2 window;
  int64_t groups = 1;

  std::vector<torch::Tensor> all() const {
    return bias.defined() ? std::vector{x, weight, bias} : std::vector{x, weight};
  }
  torch::Tensor ours(const AfterConvolution& after) const {
    return fused_convolution(x, weight, bias, window, groups, after);
  }
  // Pads for the pooling by itself, so that windows may reach beyond one end only.
  torch::Tensor theirs(const AfterConvolution& after) const {
    torch::Tensor y = convolve_images(x, weight, bias, window, groups);
    if (after.relu) y = torch::relu(y);
    if (after.pooling == nullptr) return y;
    const auto& [height, width] = *after.pooling;
    const auto [top, bottom] = height.pads(y.size(2));
    const auto [left, right] = width.pads(y.size(3));
    y = at::constant_pad_nd(y, {left, right, top, bottom}, -std::numeric_limits<double>::infinity());
    return at::max_pool2d(y, {height.size, width.size}, {height.stride, width.stride});
  }
};

Case make(const Window2& window = make_window(3, 1, 1, Padding::kValid), bool with_bias = true,
          torch::Dtype dtype = torch::kDouble, int64_t groups = 1) {
  torch::manual_seed(3);
  const auto options = torch::TensorOptions().dtype(dtype);
  Case made{.x = torch::randn({5, 4, 9, 8}, options).contiguous(kLast),
            .weight = torch::randn({6, 4 / groups, window.height.size, window.width.size}, options).contiguous(kLast),
            .bias = with_bias ? torch::randn({6}, options) : torch::Tensor(),
            .window = window,
            .groups = groups};
  for (const torch::Tensor& tensor : made.all()) tensor.requires_grad_();
  return made;
}

const std::vector<Window2>& poolings() {
  static const std::vector<Window2> all = {make_window(2, 2, 1, Padding::kValid), make_window(3, 1, 1, Padding::kValid),
                                           make_window(2, 3, 1, Padding::kValid), make_window(2, 2, 1, Padding::kSame),
                                           make_window(Size2{3, 2}, Size2{1, 2}, 1, Padding::kSame)};
  return all;
}

std::vector<AfterConvolution> all_after() {
  std::vector<AfterConvolution> all = {{}, {.relu = true}};
  for (const Window2& pooling : poolings()) {
    all.push_back({.pooling = &pooling});
    all.push_back({.relu = true, .pooling = &pooling});
  }
  return all;
}

void expect_same(const std::vector<torch::Tensor>& ours, const std::vector<torch::Tensor>& theirs, double room) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].sizes(), theirs[i].sizes());
    EXPECT_TRUE(torch::allclose(ours[i], theirs[i], room, room)) << i << "\n" << ours[i] - theirs[i];
  }
}

void expect_like_libtorch(const Case& own, const AfterConvolution& after, double room) {
  const torch::Tensor y = own.ours(after);
  ASSERT_TRUE(y.defined());
  EXPECT_EQ(y.grad_fn()->name(), "FusedConvolutionBackward");
  const torch::Tensor wanted = own.theirs(after);
  expect_same({y}, {wanted}, room);
  for (const at::MemoryFormat layout : {kLast, at::MemoryFormat::Contiguous}) {
    const torch::Tensor weights = torch::randn_like(y).contiguous(layout);
    expect_same(torch::autograd::grad({(y * weights).sum()}, own.all(), {}, /*retain_graph=*/true),
                torch::autograd::grad({(wanted * weights).sum()}, own.all(), {}, /*retain_graph=*/true), room);
  }
}

TEST(FusedConvolution, IsWhatLibTorchComputesWithItsGradients) {
  for (const bool with_bias : {true, false}) {
    for (const AfterConvolution& after : all_after()) {
      if (!with_bias && !after.relu && after.pooling == nullptr) continue;
      SCOPED_TRACE(::testing::Message() << "bias " << with_bias << " relu " << after.relu);
      expect_like_libtorch(make({{.size = 3}, {.size = 3}}, with_bias), after, 1e-12);
      expect_like_libtorch(make({{.size = 3}, {.size = 3}}, with_bias, torch::kFloat), after, 1e-4);
    }
  }
}

TEST(FusedConvolution, HasStridesDilationPaddingAndGroups) {
  const AfterConvolution after{.relu = true, .pooling = &poolings().front()};
  expect_like_libtorch(make(make_window(3, 1, 1, Padding::kSame)), after, 1e-12);
  expect_like_libtorch(make(make_window(Size2{3, 2}, Size2{2, 1}, 1, Padding::kValid)), after, 1e-12);
  expect_like_libtorch(make(make_window(2, 1, 2, Padding::kValid)), after, 1e-12);
  expect_like_libtorch(make(make_window(3, 1, 1, Padding::kValid), true, torch::kDouble, 2), after, 1e-12);
}

// The first of equal elements gets the gradient, and a NaN is the largest, as LibTorch has it.
TEST(FusedConvolution, ChoosesTheElementThatLibTorchChooses) {
  Case own = make(Window2{}, /*with_bias=*/false);
  own.weight = torch::eye(4, torch::kDouble).view({4, 4, 1, 1}).contiguous(kLast);
  own.x = torch::randint(-1, 2, {5, 4, 9, 8}, torch::kDouble).contiguous(kLast);
  own.x[0][1][2][3] = std::numeric_limits<double>::quiet_NaN();
  own.x.requires_grad_();
  for (const Window2& pooling : poolings()) {
    const AfterConvolution after{.relu = true, .pooling = &pooling};
    const torch::Tensor y = own.ours(after), wanted = own.theirs(after);
    EXPECT_TRUE(torch::allclose(y, wanted, 0, 0, /*equal_nan=*/true));
    const torch::Tensor weights = torch::randn_like(y);
    EXPECT_TRUE(torch::autograd::grad({y}, {own.x}, {weights})[0].equal(
        torch::autograd::grad({wanted}, {own.x}, {weights})[0]));
  }
}

TEST(FusedConvolution, HasGradientsOfItsGradients) {
  for (const AfterConvolution& after : all_after()) {
    const Case own = make();
    const auto twice = [&](const torch::Tensor& y) {
      const auto first = torch::autograd::grad({y.square().sum()}, own.all(), {}, true, /*create_graph=*/true);
      return torch::autograd::grad({first[0].square().sum() + first[1].square().sum() + first[2].square().sum()},
                                   own.all());
    };
    expect_same(twice(own.ours(after)), twice(own.theirs(after)), 1e-9);
  }
}

TEST(FusedConvolution, ComputesWhatIsAskedFor) {
  const Case own = make();
  const AfterConvolution after{.relu = true, .pooling = &poolings().front()};
  for (std::size_t i = 0; i < 3; ++i) {
    Case one = own;
    torch::Tensor* const tensors[] = {&one.x, &one.weight, &one.bias};
    for (std::size_t j = 0; j < 3; ++j) {
      if (j != i) *tensors[j] = tensors[j]->detach();
    }
    expect_same(torch::autograd::grad({one.ours(after).sum()}, {*tensors[i]}),
                torch::autograd::grad({own.theirs(after).sum()}, {own.all()[i]}), 1e-12);
  }
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(own.ours(after).requires_grad());
}

// The gradient that comes is overwritten unless somebody has it.
TEST(FusedConvolution, LeavesGradientsOfOthersAlone) {
  for (const AfterConvolution& after : all_after()) {
    const torch::Tensor y = make().ours(after);
    const torch::Tensor given = torch::randn_like(y);
    const torch::Tensor before = given.clone();
    torch::Tensor seen;
    y.register_hook([&](const torch::Tensor& gradient) { seen = gradient; });
    y.backward(given);
    EXPECT_TRUE(torch::equal(given, before));
    EXPECT_TRUE(torch::equal(seen, before));
  }
}

TEST(FusedConvolution, NoticesWhatWasChangedMeanwhile) {
  const AfterConvolution after{.relu = true, .pooling = &poolings().front()};
  const Case own = make();
  const torch::Tensor y = own.ours(after);
  {
    const torch::NoGradGuard no_grad;
    own.weight.add_(1);
  }
  EXPECT_THROW(y.sum().backward(), c10::Error);
  const torch::Tensor result = make().ours(after);
  result.detach().zero_();
  EXPECT_THROW(result.sum().backward(), c10::Error);
  const torch::Tensor sum = make().ours(after).sum();
  sum.backward();
  EXPECT_THROW(sum.backward(), c10::Error) << "its tensors are given up";
}

// The bytes of such gradients are not their values: a number that is negated later, and zeros without memory.
TEST(FusedConvolution, TakesGradientsThatAreNotThere) {
  for (const AfterConvolution& after : all_after()) {
    const Case own = make();
    const torch::Tensor y = own.ours(after);
    for (const torch::Tensor& given :
         {torch::randn_like(y)._neg_view(), torch::_efficientzerotensor(y.sizes(), torch::kDouble)}) {
      expect_same(torch::autograd::grad({y}, own.all(), {given}, true),
                  torch::autograd::grad({own.theirs(after)}, own.all(), {given}), 1e-12);
    }
  }
}

// The convolution's results are of 11 MB, of which each piece has 4 at most.
TEST(FusedConvolution, PoolsLargeBatchesInPieces) {
  const IntraOpThreads threads(1);
  torch::manual_seed(3);
  const auto images = [](std::vector<int64_t> sizes) { return torch::randn(sizes, torch::kDouble).contiguous(kLast); };
  const Case own{.x = images({13, 2, 60, 60}).requires_grad_(),
                 .weight = images({32, 2, 3, 3}).requires_grad_(),
                 .bias = torch::randn({32}, torch::kDouble).requires_grad_(),
                 .window = make_window(3, 1, 1, Padding::kValid)};
  const AfterConvolution after{.relu = true, .pooling = &poolings().front()};
  const torch::Tensor y = own.ours(after), wanted = own.theirs(after);
  expect_same({y}, {wanted}, 1e-12);
  const torch::Tensor weights = torch::randn_like(y);
  for (const bool of_x : {true, false}) {
    std::vector<torch::Tensor> leaves = own.all();
    if (!of_x) leaves.erase(leaves.begin());
    expect_same(torch::autograd::grad({y}, leaves, {weights}, /*retain_graph=*/true),
                torch::autograd::grad({wanted}, leaves, {weights}, /*retain_graph=*/true), 1e-9);
  }
}

TEST(FusedConvolution, HasTheSameBitsOnTheThreadsOfAnOperation) {
  torch::manual_seed(3);
  const Case own{.x = torch::randn({9, 3, 40, 40}).contiguous(kLast).requires_grad_(),
                 .weight = torch::randn({16, 3, 3, 3}).contiguous(kLast).requires_grad_(),
                 .bias = torch::randn({16}).requires_grad_(),
                 .window = make_window(3, 1, 1, Padding::kValid)};
  for (const AfterConvolution& after : all_after()) {
    const auto passes = [&] {
      const torch::Tensor y = own.ours(after);
      return std::pair(y.detach(), torch::autograd::grad({y.square().sum()}, {own.bias})[0]);
    };
    std::optional<IntraOpThreads> threads(std::in_place, 1);
    const auto alone = passes();
    threads.emplace(3);
    const auto divided = passes();
    EXPECT_TRUE(divided.first.equal(alone.first));
    EXPECT_TRUE(divided.second.equal(alone.second));
  }
}

TEST(FusedConvolution, LeavesTheRestToLibTorch) {
  const Case own = make();
  const AfterConvolution relu{.relu = true};
  const auto fits = [&](const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                        const Window2& window, const AfterConvolution& after) {
    return fused_convolution(x, weight, bias, window, 1, after).defined();
  };
  EXPECT_TRUE(fits(own.x, own.weight, own.bias, own.window, relu));
  EXPECT_FALSE(fits(own.x, own.weight, {}, own.window, {})) << "nothing follows";
  EXPECT_FALSE(fits(own.x.contiguous(), own.weight.contiguous(), own.bias, own.window, relu)) << "channels first";
  EXPECT_FALSE(fits(own.x.slice(0, 0, 0), own.weight, own.bias, own.window, relu)) << "empty";
  EXPECT_FALSE(fits(own.x.to(torch::kFloat), own.weight, own.bias, own.window, relu));
  EXPECT_FALSE(fits(own.x, own.weight, own.bias.to(torch::kFloat), own.window, relu));
  EXPECT_FALSE(fits(own.x, own.weight, own.bias, make_window(3, 2, 1, Padding::kSame), relu)) << "one end is padded";
  const Window2 large = make_window(Size2{17, 16}, 1, 1, Padding::kSame);
  EXPECT_FALSE(fits(own.x, own.weight, own.bias, own.window, {.pooling = &large})) << "places do not fit a byte";
  const torch::Tensor small = own.x.slice(2, 0, 3).contiguous(kLast);
  EXPECT_TRUE(fits(small, own.weight, own.bias, own.window, relu));
  EXPECT_FALSE(fits(small, own.weight, own.bias, own.window, {.pooling = &poolings().front()})) << "it says so";
  EXPECT_FALSE(fits(small.slice(2, 0, 2), own.weight, own.bias, own.window, relu)) << "it says so";
  const compat::Autocast autocast(torch::kCPU, torch::kBFloat16);
  EXPECT_FALSE(fits(own.x, own.weight, own.bias, own.window, relu));
}

}  // namespace
}  // namespace cohort::fused_convolution_test
