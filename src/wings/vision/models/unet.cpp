// A U-Net with the names and the arithmetic of the one that torch.hub has as "unet_carvana" (milesial/Pytorch-UNet):
// the image is halved level by level, and on the way back each level sees what it had on the way down. Halving leaves
// out the last row of an odd height, so what comes back is padded to the size that its level had.
#include <ATen/Functions.h>
#include <torch/nn/init.h>

#include "base/fail.h"
#include "cohort/models/image_models.h"
#include "cohort/parallel/stages.h"
#include "device/layout.h"
#include "models/zoo/parts.h"
#include "wings/vision/models/blocks.h"

namespace cohort::models {

namespace {

struct UNetStyle {
  NormShape norm;
  Activation activation;
};

// Two convolutions, each with a batch norm and an activation: "0", "1", "3" and "4" of the module double_conv.
class DoubleConv final : public LayerModule {
 public:
  DoubleConv(int64_t in, int64_t out, const UNetStyle& style) : style_(style) {
    const auto inner = register_module("double_conv", std::make_shared<torch::nn::Module>());
    conv1_ = inner->register_module("0", conv({.in = in, .out = out, .kernel = 3}));
    norm1_ = inner->register_module("1", norm(out, style.norm));
    conv2_ = inner->register_module("3", conv({.in = out, .out = out, .kernel = 3}));
    norm2_ = inner->register_module("4", norm(out, style.norm));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    const bool synchronized = style_.norm.synchronized;
    const torch::Tensor y = style_.activation.overwrite(batch_norm(norm1_, conv1_->forward(x), synchronized));
    return style_.activation.overwrite(batch_norm(norm2_, conv2_->forward(y), synchronized));
  }

 private:
  UNetStyle style_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d norm1_{nullptr}, norm2_{nullptr};
};

// A level on the way down: half of the size, twice the channels.
class Down final : public LayerModule {
 public:
  Down(int64_t in, const UNetStyle& style) {
    const auto inner = register_module("maxpool_conv", std::make_shared<torch::nn::Module>());
    conv_ = inner->register_module("1", std::make_shared<DoubleConv>(in, 2 * in, style));
  }

  torch::Tensor forward(const torch::Tensor& x) override { return conv_->forward(at::max_pool2d(x, {2, 2})); }

 private:
  std::shared_ptr<DoubleConv> conv_;
};

// A level on the way up: twice the size, half of the channels, and beside them those of the way down.
class Up final : public torch::nn::Module {
 public:
  Up(int64_t in, const UNetStyle& style)
      : up_(register_module("up",
                            torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(in, in / 2, 2).stride(2)))),
        conv_(register_module("conv", std::make_shared<DoubleConv>(in, in / 2, style))) {
    torch::nn::init::kaiming_normal_(up_->weight, 0, torch::kFanIn, torch::kLinear);
    torch::nn::init::zeros_(up_->bias);
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& from_down) {
    torch::Tensor y = up_->forward(x);
    const int64_t rows = from_down.size(2) - y.size(2);
    const int64_t columns = from_down.size(3) - y.size(3);
    if (rows > 0 || columns > 0) {
      y = at::constant_pad_nd(y, {columns / 2, columns - columns / 2, rows / 2, rows - rows / 2});
    }
    return conv_->forward(at::cat({from_down, y}, 1));
  }

 private:
  torch::nn::ConvTranspose2d up_;
  std::shared_ptr<DoubleConv> conv_;
};

class UNet final : public LayerModule, public ChannelsLast {
 public:
  explicit UNet(const UNetOptions& options)
      : channels_(options.in_channels), channels_last_(options.channels_last), dropout_(options.dropout) {
    const UNetStyle style{.norm = chosen(NormShape{}, options.norm_activation),
                          .activation = options.norm_activation.activation.value_or(Activation::kRelu)};
    inc_ = register_module("inc", std::make_shared<DoubleConv>(channels_, options.filters, style));
    for (int64_t i = 0; i < options.levels; ++i) {
      downs_.push_back(
          register_module("down" + std::to_string(i + 1), std::make_shared<Down>(options.filters << i, style)));
    }
    for (int64_t i = 0; i < options.levels; ++i) {
      const int64_t in = options.filters << (options.levels - i);
      ups_.push_back(register_module("up" + std::to_string(i + 1), std::make_shared<Up>(in, style)));
    }
    outc_ = register_module("outc", std::make_shared<torch::nn::Module>())
                ->register_module("conv",
                                  torch::nn::Conv2d(torch::nn::Conv2dOptions(options.filters, options.num_classes, 1)));
    torch::nn::init::kaiming_normal_(outc_->weight, 0, torch::kFanIn, torch::kLinear);
    torch::nn::init::zeros_(outc_->bias);
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_images("unet", x, channels_);
    const int64_t least = int64_t{1} << downs_.size();
    if (x.size(2) < least || x.size(3) < least) {
      fail<InvalidArgument>("[models] unet: an image of ", x.size(2), " x ", x.size(3), " cannot be halved ",
                            downs_.size(), " times, wanted at least ", least, " x ", least);
    }
    const torch::Tensor input = x.to(outc_->weight.scalar_type());
    // What is still needed: the levels that were left on the way down, and behind them the one where it is.
    std::vector<torch::Tensor> levels = {
        inc_->forward(channels_last_ ? input.contiguous(at::MemoryFormat::ChannelsLast) : input)};
    for (std::size_t i = 0; i < downs_.size(); ++i) {
      levels = stage_place(levels, "down" + std::to_string(i + 1));
      levels.push_back(downs_[i]->forward(levels.back()));
    }
    if (is_training() && dropout_ > 0.0) levels.back() = drop(levels.back(), dropout_, levels.back().sizes());
    for (std::size_t i = 0; i < ups_.size(); ++i) {
      levels = stage_place(levels, "up" + std::to_string(i + 1));
      const torch::Tensor y = std::move(levels.back());
      levels.pop_back();
      levels.back() = ups_[i]->forward(y, levels.back());
    }
    return outc_->forward(levels.back());
  }

  bool channels_last() const override { return channels_last_; }

 private:
  int64_t channels_;
  bool channels_last_;
  double dropout_;
  std::shared_ptr<DoubleConv> inc_;
  std::vector<std::shared_ptr<Down>> downs_;
  std::vector<std::shared_ptr<Up>> ups_;
  torch::nn::Conv2d outc_{nullptr};
};

}  // namespace

std::shared_ptr<LayerModule> unet(const UNetOptions& options) {
  constexpr int64_t kMostLevels = 16;
  if (options.filters < 1 || options.levels < 1 || options.levels > kMostLevels) {
    fail<InvalidArgument>("[models] unet: filters is ", options.filters, " and levels ", options.levels,
                          ", wanted 1 filter or more and 1 to ", kMostLevels, " levels");
  }
  if (!(options.dropout >= 0.0 && options.dropout < 1.0)) {
    fail<InvalidArgument>("[models] unet: dropout is ", options.dropout, ", wanted 0 or more and below 1");
  }
  return std::make_shared<UNet>(options);
}

}  // namespace cohort::models
