// Networks of images that are divided, their training, and what it has to come to.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cohort/cohort.h"
#include "cohort/models/zoo.h"
#include "tests/equivalence/outcomes.h"

namespace cohort::equivalence::space_runs {

using torch::Tensor;

inline constexpr int64_t kEpochs = 4;
inline constexpr int64_t kRows = 4 * 4 + 1;  // five steps a pass; the last batch leaves a share empty
inline constexpr int64_t kLabels = 3;

// A residual block, of which the second convolution sees every second pixel.
class Block final : public torch::nn::Module {
 public:
  Block(int64_t in, int64_t out, int64_t stride) {
    using torch::nn::Conv2d;
    using torch::nn::Conv2dOptions;
    conv1_ = register_module("conv1", Conv2d(Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    conv2_ = register_module("conv2", Conv2d(Conv2dOptions(out, out, 3).padding(2).dilation(2)));
    down_ = register_module("down", Conv2d(Conv2dOptions(in, out, 1).stride(stride)));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(out));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(out));
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = torch::tanh(bn1_(conv1_(x)));
    return torch::tanh(bn2_(conv2_(y)).add_(down_(x)));
  }

 private:
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, down_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
};

// A ResNet with the stem of those for photographs.
class ResNet final : public torch::nn::Module {
 public:
  ResNet() {
    conv_ = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 7).stride(2).padding(3)));
    bn_ = register_module("bn", torch::nn::BatchNorm2d(4));
    block1_ = register_module("block1", std::make_shared<Block>(4, 4, 1));
    block2_ = register_module("block2", std::make_shared<Block>(4, 6, 2));
    fc_ = register_module("fc", torch::nn::Linear(6, kLabels));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = torch::max_pool2d(torch::relu(bn_(conv_(x))), {3, 3}, {2, 2}, {1, 1});
    y = block2_->forward(block1_->forward(y));
    return fc_(torch::adaptive_avg_pool2d(y, {1, 1}).flatten(1));
  }

 private:
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d bn_{nullptr};
  std::shared_ptr<Block> block1_, block2_;
  torch::nn::Linear fc_{nullptr};
};

// The library's U-Net with a target for each pixel.
class UNet final : public torch::nn::Module {
 public:
  UNet()
      : net_(register_module("net", models::unet({.num_classes = kLabels,
                                                  .in_channels = 2,
                                                  .filters = 2,
                                                  .levels = 2,
                                                  .norm_activation = {.activation = Activation::kTanh}}))) {
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) { return net_->forward(x).permute({0, 2, 3, 1}); }  // the classes last

 private:
  std::shared_ptr<LayerModule> net_;
};

struct Net {
  std::string name;
  std::function<Model()> make;
  bool pixels = false;  // a label for each pixel
  int64_t height = 21;
  int64_t width = 19;
};

inline std::vector<Net> nets() {
  return {
      {"u_net", [] { return Model([] { return std::make_shared<UNet>(); }); }, true, 13, 11},
      {"resnet", [] { return Model([] { return std::make_shared<ResNet>(); }); }, false, 33, 23},
  };
}

inline Dataset batches(const Net& net) {
  torch::manual_seed(7);
  const Tensor x = torch::randn({kRows, 2, net.height, net.width}, torch::kDouble);
  const Tensor y = net.pixels ? torch::randint(kLabels, {kRows, net.height, net.width}, torch::kLong)
                              : torch::randint(kLabels, {kRows}, torch::kLong);
  return Dataset::from_tensor_slices(x, y).batch(4);
}

inline Outcome under(const Strategy& strategy, const Net& net) {
  return trained_under(
      strategy, net.make, [&] { return batches(net); }, kEpochs);
}

}  // namespace cohort::equivalence::space_runs
