// ResNets with torchvision's names and arithmetic: stages of residual blocks, whose kind is a template argument.
#include <ATen/Functions.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include "base/fail.h"
#include "cohort/models/image_models.h"
#include "device/layout.h"
#include "wings/vision/models/blocks.h"

namespace cohort::models {

namespace {

// The way in which the input of a block is added to its output if their shapes differ.
enum class Shortcut {
  kProjection,  // a convolution of 1 x 1
  kPadding,     // every second pixel, and channels of zeros
};

// The properties that all blocks share.
struct ResidualStyle {
  Shortcut shortcut;
  NormShape norm;
  Activation activation = Activation::kRelu;
};

std::shared_ptr<ConvNorm> projection(int64_t in, int64_t out, int64_t stride, const NormShape& norm) {
  return std::make_shared<ConvNorm>(ConvShape{.in = in, .out = out, .stride = stride}, norm);
}

class BasicBlock : public LayerModule {
 public:
  // The channels of the output for each of `planes`.
  static constexpr int64_t kExpansion = 1;

  BasicBlock(int64_t in, int64_t planes, int64_t stride, const ResidualStyle& style)
      : style_(style), stride_(stride), added_(planes - in) {
    conv1_ = register_module("conv1", conv({.in = in, .out = planes, .kernel = 3, .stride = stride}));
    bn1_ = register_module("bn1", norm(planes, style.norm));
    conv2_ = register_module("conv2", conv({.in = planes, .out = planes, .kernel = 3}));
    bn2_ = register_module("bn2", norm(planes, style.norm));
    if (style.shortcut == Shortcut::kProjection && (stride != 1 || in != planes)) {
      downsample_ = register_module("downsample", projection(in, planes, stride, style.norm));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    const bool synchronized = style_.norm.synchronized;
    const torch::Tensor y = style_.activation.overwrite(batch_norm(bn1_, conv1_->forward(x), synchronized));
    return style_.activation.overwrite(batch_norm(bn2_, conv2_->forward(y), synchronized).add_(shortcut(x)));
  }

  torch::nn::BatchNorm2d last_norm() const { return bn2_; }

 private:
  torch::Tensor shortcut(const torch::Tensor& x) {
    if (downsample_) return downsample_->forward(x);
    if (stride_ == 1 && added_ == 0) return x;
    const torch::Tensor fewer = x.slice(2, 0, x.size(2), stride_).slice(3, 0, x.size(3), stride_);
    return at::constant_pad_nd(fewer, {0, 0, 0, 0, added_ / 2, added_ - added_ / 2});
  }

  ResidualStyle style_;
  int64_t stride_;
  int64_t added_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
  std::shared_ptr<ConvNorm> downsample_;
};

class Bottleneck : public LayerModule {
 public:
  static constexpr int64_t kExpansion = 4;

  Bottleneck(int64_t in, int64_t planes, int64_t stride, const ResidualStyle& style) : style_(style) {
    const int64_t out = planes * kExpansion;
    conv1_ = register_module("conv1", conv({.in = in, .out = planes}));
    bn1_ = register_module("bn1", norm(planes, style.norm));
    conv2_ = register_module("conv2", conv({.in = planes, .out = planes, .kernel = 3, .stride = stride}));
    bn2_ = register_module("bn2", norm(planes, style.norm));
    conv3_ = register_module("conv3", conv({.in = planes, .out = out}));
    bn3_ = register_module("bn3", norm(out, style.norm));
    if (stride == 1 && in == out) return;
    downsample_ = register_module("downsample", projection(in, out, stride, style.norm));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    const bool synchronized = style_.norm.synchronized;
    torch::Tensor y = style_.activation.overwrite(batch_norm(bn1_, conv1_->forward(x), synchronized));
    y = style_.activation.overwrite(batch_norm(bn2_, conv2_->forward(y), synchronized));
    y = batch_norm(bn3_, conv3_->forward(y), synchronized);
    return style_.activation.overwrite(y.add_(downsample_ ? downsample_->forward(x) : x));
  }

  torch::nn::BatchNorm2d last_norm() const { return bn3_; }

 private:
  ResidualStyle style_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  std::shared_ptr<ConvNorm> downsample_;
};

struct Stem {
  int64_t kernel = 7;
  int64_t stride = 2;
  bool pool = true;
  int64_t planes = 64;
};

template <typename Block>
class ResNet final : public LayerModule, public ChannelsLast {
 public:
  ResNet(const std::vector<int64_t>& depths, const Stem& stem, Shortcut shortcut, const ResNetOptions& options)
      : channels_(options.in_channels),
        channels_last_(options.channels_last),
        pool_(stem.pool),
        style_{.shortcut = shortcut,
               .norm = chosen(NormShape{}, options.norm_activation),
               .activation = options.norm_activation.activation.value_or(Activation::kRelu)} {
    if (options.num_classes < 1 || options.in_channels < 1) {
      fail<InvalidArgument>("[models] resnet: num_classes is ", options.num_classes, " and in_channels ",
                            options.in_channels, ", wanted 1 or more");
    }
    conv1_ = register_module("conv1",
                             conv({.in = channels_, .out = stem.planes, .kernel = stem.kernel, .stride = stem.stride}));
    bn1_ = register_module("bn1", norm(stem.planes, style_.norm));
    int64_t in = stem.planes;
    int64_t planes = stem.planes;
    for (std::size_t stage = 0; stage < depths.size(); ++stage, planes *= 2) {
      const std::string name = "layer" + std::to_string(stage + 1);
      const auto blocks = std::make_shared<Chain>(options.remat, name);
      for (int64_t i = 0; i < depths[stage]; ++i) {
        const auto block = std::make_shared<Block>(in, planes, stage > 0 && i == 0 ? 2 : 1, style_);
        if (options.zero_init_residual) torch::nn::init::zeros_(block->last_norm()->weight);
        blocks->push_back(block);
        in = planes * Block::kExpansion;
      }
      stages_.push_back(register_module(name, blocks));
    }
    fc_ = register_module("fc", torch::nn::Linear(in, options.num_classes));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_images("resnet", x, channels_);
    const torch::Tensor input = x.to(conv1_->weight.scalar_type());
    torch::Tensor y = conv1_->forward(channels_last_ ? input.contiguous(at::MemoryFormat::ChannelsLast) : input);
    y = style_.activation.overwrite(batch_norm(bn1_, y, style_.norm.synchronized));
    if (pool_) y = at::max_pool2d(y, {3, 3}, {2, 2}, {1, 1});
    for (const auto& stage : stages_) y = stage->forward(y);
    return fc_->forward(y.mean({2, 3}));
  }

  bool channels_last() const override { return channels_last_; }

 private:
  int64_t channels_;
  bool channels_last_;
  bool pool_;
  ResidualStyle style_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<std::shared_ptr<Chain>> stages_;
  torch::nn::Linear fc_{nullptr};
};

template <typename Block>
std::shared_ptr<LayerModule> for_photographs(const std::vector<int64_t>& depths, const ResNetOptions& options) {
  return std::make_shared<ResNet<Block>>(depths, Stem{}, Shortcut::kProjection, options);
}

}  // namespace

std::shared_ptr<LayerModule> resnet18(const ResNetOptions& options) {
  return for_photographs<BasicBlock>({2, 2, 2, 2}, options);
}

std::shared_ptr<LayerModule> resnet34(const ResNetOptions& options) {
  return for_photographs<BasicBlock>({3, 4, 6, 3}, options);
}

std::shared_ptr<LayerModule> resnet50(const ResNetOptions& options) {
  return for_photographs<Bottleneck>({3, 4, 6, 3}, options);
}

std::shared_ptr<LayerModule> resnet101(const ResNetOptions& options) {
  return for_photographs<Bottleneck>({3, 4, 23, 3}, options);
}

std::shared_ptr<LayerModule> resnet152(const ResNetOptions& options) {
  return for_photographs<Bottleneck>({3, 8, 36, 3}, options);
}

std::shared_ptr<LayerModule> resnet_cifar(int64_t blocks, const ResNetOptions& options) {
  if (blocks < 1) fail<InvalidArgument>("[models] resnet_cifar: blocks is ", blocks, ", wanted 1 or more");
  const Stem stem{.kernel = 3, .stride = 1, .pool = false, .planes = 16};
  return std::make_shared<ResNet<BasicBlock>>(std::vector<int64_t>(3, blocks), stem, Shortcut::kPadding, options);
}

}  // namespace cohort::models
