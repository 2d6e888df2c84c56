// Conv2D and DepthwiseConv2D: the second is the first with a group a channel.
#include <ATen/Functions.h>

#include "cohort/device.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// What the two have in common once the number of input channels is known.
struct Convolution {
  std::string_view type;
  int64_t channels = 0;
  int64_t filters = 0;
  int64_t groups = 1;
  Size2 kernel = 1;
  Window2 window;
  double fan_in = 1.0;
  double fan_out = 1.0;
  Activation activation;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::kGlorotUniform;
  Initializer bias_initializer = Initializer::kZeros;
};

// LibTorch's CPU kernels around convolutions (pooling above all) are faster with the channels last, a layout that
// outputs take over from the weights. Strides that say so even of a single channel spare the way back and forth. Of
// pointwise kernels both layouts are the same.
torch::Tensor channels_last(const torch::Tensor& weight) {
  const auto size = weight.sizes();
  const bool helps = current_torch_device().is_cpu() && weight.scalar_type() == torch::kFloat;
  if (!helps || size[2] * size[3] == 1) return weight;
  const std::vector<int64_t> strides = {size[1] * size[2] * size[3], 1, size[1] * size[3], size[1]};
  return torch::empty_strided(size, strides, weight.options()).copy_(weight);
}

class ConvModule final : public ConvolutionModule {
 public:
  ConvModule(Convolution convolution, const BuildContext& context)
      : conv_(std::move(convolution)), name_(context.name), adds_channel_(context.input.size() == 2) {
    const torch::Tensor weight = torch::empty(
        {conv_.filters, conv_.channels / conv_.groups, conv_.kernel.height, conv_.kernel.width}, context.dtype);
    conv_.kernel_initializer.fill(weight, conv_.fan_in, conv_.fan_out);
    weight_ = register_parameter("weight", channels_last(weight));
    if (!conv_.use_bias) return;
    bias_ = register_parameter("bias", torch::empty({conv_.filters}, context.dtype));
    conv_.bias_initializer.fill(bias_, conv_.fan_in, conv_.fan_out);
  }

  torch::Tensor forward(const torch::Tensor& x) override { return conv_.activation.overwrite(convolve(x)); }
  const Activation& activation() const override { return conv_.activation; }

  torch::Tensor convolve(const torch::Tensor& input) override {
    torch::Tensor x = adds_channel_ && input.dim() == 3 ? input.unsqueeze(1) : input;
    check_input(name_, conv_.type, x, 4, 1, conv_.channels);
    const auto [top, bottom] = conv_.window.height.pads(x.size(2));
    const auto [left, right] = conv_.window.width.pads(x.size(3));
    std::vector<int64_t> padding = {top, left};
    if (top != bottom || left != right) {
      x = at::constant_pad_nd(x, {left, right, top, bottom});
      padding = {0, 0};
    }
    // LibTorch takes an empty batch another way, with contiguous weights only.
    const torch::Tensor weight = x.numel() == 0 ? weight_.contiguous() : weight_;
    return at::conv2d(x, weight, bias_, {conv_.window.height.stride, conv_.window.width.stride}, padding,
                      {conv_.window.height.dilation, conv_.window.width.dilation}, conv_.groups);
  }

 private:
  Convolution conv_;
  std::string name_;
  bool adds_channel_;
  torch::Tensor weight_, bias_;
};

void check_window(std::string_view type, Size2 kernel, Size2 strides, Size2 dilation) {
  if (kernel.height <= 0 || kernel.width <= 0) {
    fail_option(type, "kernel_size must be positive, got ", kernel.height, " x ", kernel.width);
  }
  if (strides.height <= 0 || strides.width <= 0) {
    fail_option(type, "strides must be positive, got ", strides.height, " x ", strides.width);
  }
  if (dilation.height <= 0 || dilation.width <= 0) {
    fail_option(type, "dilation_rate must be positive, got ", dilation.height, " x ", dilation.width);
  }
  if (strides != Size2(1) && dilation != Size2(1))
    fail_option(type, "strides and dilation_rate cannot both be above 1");
}

class Conv2DKind final : public LayerKind {
 public:
  static constexpr std::string_view kType = "Conv2D";

  explicit Conv2DKind(Conv2DOptions options) : options_(std::move(options)) {
    if (options_.filters <= 0) fail_option(kType, "filters must be positive, got ", options_.filters);
    check_window(kType, options_.kernel_size, options_.strides, options_.dilation_rate);
    if (options_.groups <= 0 || options_.filters % options_.groups != 0) {
      fail_option(kType, "groups must be positive and divide the ", options_.filters, " filters, got ",
                  options_.groups);
    }
  }
  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return "conv2d"; }

  Shape output_shape(const BuildContext& context) const override {
    const Shape image = checked_image(context);
    return window_output(context, kType, image, options_.filters, window());
  }

  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    const int64_t channels = checked_image(context)[0];
    const int64_t group_channels = channels / options_.groups;
    const auto area = static_cast<double>(options_.kernel_size.height * options_.kernel_size.width);
    return std::make_shared<ConvModule>(Convolution{.type = kType,
                                                    .channels = channels,
                                                    .filters = options_.filters,
                                                    .groups = options_.groups,
                                                    .kernel = options_.kernel_size,
                                                    .window = window(),
                                                    .fan_in = area * static_cast<double>(group_channels),
                                                    .fan_out = area * static_cast<double>(options_.filters),
                                                    .activation = options_.activation,
                                                    .use_bias = options_.use_bias,
                                                    .kernel_initializer = options_.kernel_initializer,
                                                    .bias_initializer = options_.bias_initializer},
                                        context);
  }

 private:
  Window2 window() const {
    return make_window(options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
  }
  Shape checked_image(const BuildContext& context) const {
    Shape image = image_shape(context, kType, /*may_add_channel=*/true);
    if (image[0] <= 0 || image[0] % options_.groups != 0) {
      fail_input(context.name, kType, to_text(context.input) + " an example",
                 c10::str("a number of channels that is known and that ", options_.groups, " groups divide"));
    }
    return image;
  }

  Conv2DOptions options_;
};

class DepthwiseConv2DKind final : public LayerKind {
 public:
  static constexpr std::string_view kType = "DepthwiseConv2D";

  explicit DepthwiseConv2DKind(DepthwiseConv2DOptions options) : options_(std::move(options)) {
    if (options_.depth_multiplier <= 0) {
      fail_option(kType, "depth_multiplier must be positive, got ", options_.depth_multiplier);
    }
    check_window(kType, options_.kernel_size, options_.strides, options_.dilation_rate);
  }
  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return "depthwise_conv2d"; }

  Shape output_shape(const BuildContext& context) const override {
    const Shape image = checked_image(context);
    return window_output(context, kType, image, image[0] * options_.depth_multiplier, window());
  }

  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    const int64_t channels = checked_image(context)[0];
    const auto area = static_cast<double>(options_.kernel_size.height * options_.kernel_size.width);
    return std::make_shared<ConvModule>(
        // The fans are those of Keras' kernel, [height, width, channels, multiplier].
        Convolution{.type = kType,
                    .channels = channels,
                    .filters = channels * options_.depth_multiplier,
                    .groups = channels,
                    .kernel = options_.kernel_size,
                    .window = window(),
                    .fan_in = area * static_cast<double>(channels),
                    .fan_out = area * static_cast<double>(options_.depth_multiplier),
                    .activation = options_.activation,
                    .use_bias = options_.use_bias,
                    .kernel_initializer = options_.depthwise_initializer,
                    .bias_initializer = options_.bias_initializer},
        context);
  }

 private:
  Window2 window() const {
    return make_window(options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
  }
  static Shape checked_image(const BuildContext& context) {
    Shape image = image_shape(context, kType, /*may_add_channel=*/true);
    if (image[0] <= 0) {
      fail_input(context.name, kType, to_text(context.input) + " an example", "a number of channels that is known");
    }
    return image;
  }

  DepthwiseConv2DOptions options_;
};

}  // namespace

Layer Conv2D(const Conv2DOptions& options) {
  return make_layer<Conv2DKind>(options, options.trainable);
}

Layer Conv2D(int64_t filters, Size2 kernel_size, const Activation& activation) {
  return Conv2D(Conv2DOptions{.filters = filters, .kernel_size = kernel_size, .activation = activation});
}

Layer DepthwiseConv2D(const DepthwiseConv2DOptions& options) {
  return make_layer<DepthwiseConv2DKind>(options, options.trainable);
}

}  // namespace cohort
