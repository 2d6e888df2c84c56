#include <ATen/Functions.h>

#include <limits>

#include "cohort/train/layers/pooling.h"
#include "train/layers/layer_form.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

enum class Pool { kMax, kAverage };

class WindowPoolingModule final : public PoolingModule, public CountsChannels {
 public:
  WindowPoolingModule(Pool pool, std::string_view type, Window2 window, const BuildContext& context)
      : PoolingModule(pool == Pool::kMax, window), type_(type), name_(context.name), channels_(context.input[0]) {}

  DependsOn depends_on() const override { return DependsOn::kChannel; }
  void divide_channels(int64_t parts) override { channels_ /= parts; }
  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, 4, 1, channels_);
    const auto& [height, width] = window();
    const auto [top, bottom] = height.pads(x.size(2));
    const auto [left, right] = width.pads(x.size(3));
    const std::vector<int64_t> size = {height.size, width.size};
    const std::vector<int64_t> stride = {height.stride, width.stride};
    const std::vector<int64_t> around = {left, right, top, bottom};
    const bool even = top == bottom && left == right;
    const std::vector<int64_t> padding = even ? std::vector<int64_t>{top, left} : std::vector<int64_t>{0, 0};
    if (takes_maximum()) {
      constexpr double kLowest = -std::numeric_limits<double>::infinity();
      return at::max_pool2d(even ? x : at::constant_pad_nd(x, around, kLowest), size, stride, padding);
    }
    if (even) return at::avg_pool2d(x, size, stride, padding, /*ceil_mode=*/false, /*count_include_pad=*/false);
    // LibTorch pads both ends alike: sums over zeros, divided by how many elements are none of them.
    const auto sums = [&](const torch::Tensor& image) {
      return at::avg_pool2d(at::constant_pad_nd(image, around), size, stride, padding, false, true,
                            /*divisor_override=*/1);
    };
    return sums(x) / sums(torch::ones({1, 1, x.size(2), x.size(3)}, x.options().requires_grad(false)));
  }

 private:
  std::string_view type_;
  std::string name_;
  int64_t channels_;
};

class PoolingKind final : public LayerKind {
 public:
  PoolingKind(Pool pool, const Pooling2DOptions& options)
      : pool_(pool),
        size_(options.pool_size),
        strides_(options.strides.value_or(options.pool_size)),
        padding_(options.padding) {
    if (size_.height <= 0 || size_.width <= 0) {
      fail_option(type(), "pool_size must be positive, got ", size_.height, " x ", size_.width);
    }
    if (strides_.height <= 0 || strides_.width <= 0) {
      fail_option(type(), "strides must be positive, got ", strides_.height, " x ", strides_.width);
    }
    check_padding(type(), padding_);
  }
  std::string_view type() const override { return pool_ == Pool::kMax ? "MaxPooling2D" : "AveragePooling2D"; }
  std::string_view base_name() const override { return pool_ == Pool::kMax ? "max_pooling2d" : "average_pooling2d"; }

  Shape output_shape(const BuildContext& context) const override {
    const Shape image = image_shape(context, type(), /*may_add_channel=*/false);
    return window_output(context, type(), image, image[0], window());
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<WindowPoolingModule>(pool_, type(), window(), context);
  }

 private:
  Window2 window() const { return make_window(size_, strides_, 1, padding_); }

  Pool pool_;
  Size2 size_;
  Size2 strides_;
  Padding padding_;
};

class GlobalPoolingModule final : public LayerModule, public CountsChannels {
 public:
  GlobalPoolingModule(Pool pool, std::string_view type, bool keepdims, const BuildContext& context)
      : pool_(pool), type_(type), keepdims_(keepdims), name_(context.name), channels_(context.input[0]) {}
  DependsOn depends_on() const override { return DependsOn::kChannel; }
  void divide_channels(int64_t parts) override { channels_ /= parts; }
  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, type_, x, 4, 1, channels_);
    return pool_ == Pool::kMax ? x.amax({2, 3}, keepdims_) : x.mean({2, 3}, keepdims_);
  }

 private:
  Pool pool_;
  std::string_view type_;
  bool keepdims_;
  std::string name_;
  int64_t channels_;
};

class GlobalPoolingKind final : public LayerKind {
 public:
  GlobalPoolingKind(Pool pool, bool keepdims) : pool_(pool), keepdims_(keepdims) {}
  std::string_view type() const override {
    return pool_ == Pool::kMax ? "GlobalMaxPooling2D" : "GlobalAveragePooling2D";
  }
  std::string_view base_name() const override {
    return pool_ == Pool::kMax ? "global_max_pooling2d" : "global_average_pooling2d";
  }
  Shape output_shape(const BuildContext& context) const override {
    const Shape image = image_shape(context, type(), /*may_add_channel=*/false);
    return keepdims_ ? Shape{image[0], 1, 1} : Shape{image[0]};
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<GlobalPoolingModule>(pool_, type(), keepdims_, context);
  }

 private:
  Pool pool_;
  bool keepdims_;
};

}  // namespace

Layer MaxPooling2D(const Pooling2DOptions& options) {
  return Layer(made_with<PoolingKind>(options, Pool::kMax, options), options.name);
}

Layer AveragePooling2D(const Pooling2DOptions& options) {
  return Layer(made_with<PoolingKind>(options, Pool::kAverage, options), options.name);
}

Layer GlobalAveragePooling2D(const GlobalAveragePooling2DOptions& options) {
  return Layer(made_with<GlobalPoolingKind>(options, Pool::kAverage, options.keepdims), options.name);
}

Layer GlobalMaxPooling2D(const GlobalMaxPooling2DOptions& options) {
  return Layer(made_with<GlobalPoolingKind>(options, Pool::kMax, options.keepdims), options.name);
}

}  // namespace cohort
