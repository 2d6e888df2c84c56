// DepthwiseConv2D: Conv2D with a group a channel.
#include "cohort/train/layers/more_convolutions.h"
#include "train/layers/conv_module.h"

namespace cohort {

namespace {

class DepthwiseConv2DKind final : public LayerKind {
 public:
  static constexpr std::string_view kType = "DepthwiseConv2D";

  explicit DepthwiseConv2DKind(DepthwiseConv2DOptions options) : options_(std::move(options)) {
    if (options_.depth_multiplier <= 0) {
      fail_option(kType, "depth_multiplier must be positive, got ", options_.depth_multiplier);
    }
    check_images_window(kType, options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
  }
  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return "depthwise_conv2d"; }

  Shape output_shape(const BuildContext& context) const override {
    const Shape image = known_image(context, kType);
    return window_output(context, kType, image, image[0] * options_.depth_multiplier, window());
  }

  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    const int64_t channels = known_image(context, kType)[0];
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
                    .bias_initializer = options_.bias_initializer,
                    .kernel_regularizer = options_.depthwise_regularizer,
                    .bias_regularizer = options_.bias_regularizer,
                    .kernel_constraint = options_.depthwise_constraint,
                    .bias_constraint = options_.bias_constraint,
                    .as_keras = [multiplier = options_.depth_multiplier](
                                    const torch::Tensor& weight) { return keras_depthwise(weight, multiplier); }},
        context);
  }

 private:
  Window2 window() const {
    return make_window(options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
  }

  DepthwiseConv2DOptions options_;
};

}  // namespace

Layer DepthwiseConv2D(const DepthwiseConv2DOptions& options) {
  return make_layer<DepthwiseConv2DKind>(options, options.trainable);
}

}  // namespace cohort
