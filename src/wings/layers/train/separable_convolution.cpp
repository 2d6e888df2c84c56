// SeparableConv2D: a depthwise convolution of images and a pointwise one.
#include <ATen/Functions.h>

#include "cohort/train/layers/more_convolutions.h"
#include "train/layers/constraints.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// Both steps of a separable convolution.
class SeparableConvModule final : public ConvolutionModule, public ConstrainedLayer {
 public:
  SeparableConvModule(const SeparableConv2DOptions& options, int64_t channels, const Window2& window,
                      const BuildContext& context)
      : options_(options),
        window_(window),
        channels_(channels),
        name_(context.name),
        adds_channel_(context.input.size() == 2) {
    const int64_t height = options.kernel_size.height;
    const int64_t width = options.kernel_size.width;
    const int64_t inner = channels * options.depth_multiplier;
    const torch::Tensor depthwise = torch::empty({inner, 1, height, width}, context.dtype);
    options.depthwise_initializer.fill(depthwise, Fans::of_kernel({height, width, channels, options.depth_multiplier}));
    depthwise_ = register_parameter("depthwise_weight", fast_layout(depthwise));
    pointwise_ = register_parameter("pointwise_weight", torch::empty({options.filters, inner, 1, 1}, context.dtype));
    options.pointwise_initializer.fill(pointwise_, Fans::of_kernel({1, 1, inner, options.filters}));
    constrain_by(options.depthwise_constraint, depthwise_,
                 [multiplier = options.depth_multiplier](const torch::Tensor& weight) {
                   return keras_depthwise(weight, multiplier);
                 });
    constrain_by(options.pointwise_constraint, pointwise_);
    if (!options.use_bias) return;
    bias_ = register_parameter("bias", torch::empty({options.filters}, context.dtype));
    options.bias_initializer.fill(bias_, Fans::of_kernel({options.filters}));
    constrain_by(options.bias_constraint, bias_);
  }

  const Activation& activation() const override { return options_.activation; }

  torch::Tensor convolve(const torch::Tensor& input) override {
    const torch::Tensor x = adds_channel_ && input.dim() == 3 ? input.unsqueeze(1) : input;
    check_input(name_, "SeparableConv2D", x, 4, 1, channels_);
    const torch::Tensor inner = convolve_images(x, depthwise_, {}, window_, channels_);
    return convolve_images(inner, pointwise_, bias_, Window2{}, 1);
  }
  torch::Tensor penalty() const override {
    return penalty_of({{options_.depthwise_regularizer, depthwise_},
                       {options_.pointwise_regularizer, pointwise_},
                       {options_.bias_regularizer, bias_}});
  }

 private:
  SeparableConv2DOptions options_;
  Window2 window_;
  int64_t channels_;
  std::string name_;
  bool adds_channel_;
  torch::Tensor depthwise_, pointwise_, bias_;
};

class SeparableConv2DKind final : public LayerKind {
 public:
  static constexpr std::string_view kType = "SeparableConv2D";

  explicit SeparableConv2DKind(SeparableConv2DOptions options) : options_(std::move(options)) {
    if (options_.filters <= 0) fail_option(kType, "filters must be positive, got ", options_.filters);
    if (options_.depth_multiplier <= 0) {
      fail_option(kType, "depth_multiplier must be positive, got ", options_.depth_multiplier);
    }
    check_images_window(kType, options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
  }
  std::string_view type() const override { return kType; }
  std::string_view base_name() const override { return "separable_conv2d"; }

  Shape output_shape(const BuildContext& context) const override {
    return window_output(context, kType, known_image(context, kType), options_.filters, window());
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<SeparableConvModule>(options_, known_image(context, kType)[0], window(), context);
  }

 private:
  Window2 window() const {
    return make_window(options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
  }

  SeparableConv2DOptions options_;
};

}  // namespace

Layer SeparableConv2D(const SeparableConv2DOptions& options) {
  return make_layer<SeparableConv2DKind>(options, options.trainable);
}

}  // namespace cohort
