// Conv2D, and what other convolutions of images have in common with it.
#include <ATen/Functions.h>

#include "cohort/device.h"
#include "cohort/train/layers/convolution.h"
#include "train/layers/conv_module.h"
#include "train/layers/support.h"

namespace cohort {

// LibTorch's CPU kernels around convolutions (pooling above all) are faster with the channels last, a layout that
// outputs take over from the weights. Strides that say so even of a single channel spare the way back and forth. Both
// layouts of pointwise kernels are the same.
torch::Tensor fast_layout(const torch::Tensor& weight) {
  const auto size = weight.sizes();
  const bool helps = current_torch_device().is_cpu() && weight.scalar_type() == torch::kFloat;
  if (!helps || size[2] * size[3] == 1) return weight;
  const std::vector<int64_t> strides = {size[1] * size[2] * size[3], 1, size[1] * size[3], size[1]};
  return torch::empty_strided(size, strides, weight.options()).copy_(weight);
}

torch::Tensor ConvolutionModule::forward(const torch::Tensor& x) {
  const bool relu = activation().is_relu();
  const torch::Tensor y = fused(x, {.relu = relu});
  return y.defined() && relu ? y : activation().overwrite(y.defined() ? y : convolve(x));
}

ConvModule::ConvModule(Convolution convolution, const BuildContext& context)
    : conv_(std::move(convolution)), name_(context.name), adds_channel_(context.input.size() == 2) {
  const torch::Tensor weight = torch::empty(
      {conv_.filters, conv_.channels / conv_.groups, conv_.kernel.height, conv_.kernel.width}, context.dtype);
  conv_.kernel_initializer.fill(weight, conv_.fan_in, conv_.fan_out);
  weight_ = register_parameter("weight", fast_layout(weight));
  constrain_by(conv_.kernel_constraint, weight_, conv_.as_keras);
  if (!conv_.use_bias) return;
  bias_ = register_parameter("bias", torch::empty({conv_.filters}, context.dtype));
  conv_.bias_initializer.fill(bias_, conv_.fan_in, conv_.fan_out);
  constrain_by(conv_.bias_constraint, bias_);
}

torch::Tensor ConvModule::convolve(const torch::Tensor& input) {
  const torch::Tensor x = with_channel(input);
  if (form() != nullptr) return form()->forward(x);
  check_input(name_, conv_.type, x, 4, 1, conv_.channels);
  return convolve_images(x, weight_, bias_, conv_.window, conv_.groups);
}

torch::Tensor ConvModule::fused(const torch::Tensor& input, const AfterConvolution& after) const {
  const torch::Tensor x = with_channel(input);
  const bool fits = form() == nullptr && x.dim() == 4 && x.size(1) == conv_.channels;
  return fits ? fused_convolution(x, weight_, bias_, conv_.window, conv_.groups, after) : torch::Tensor();
}

torch::Tensor ConvModule::penalty() const {
  return penalty_of({{conv_.kernel_regularizer, weight_}, {conv_.bias_regularizer, bias_}});
}

torch::Tensor ConvModule::with_channel(const torch::Tensor& x) const {
  return adds_channel_ && x.dim() == 3 ? x.unsqueeze(1) : x;
}

void check_images_window(std::string_view type, Size2 kernel, Size2 strides, Size2 dilation, Padding padding) {
  check_window(type, {kernel.height, kernel.width}, {strides.height, strides.width}, {dilation.height, dilation.width});
  check_padding(type, padding);
}

Shape known_image(const BuildContext& context, std::string_view type) {
  Shape image = image_shape(context, type, /*may_add_channel=*/true);
  if (image[0] > 0) return image;
  fail_input(context.name, type, to_text(context.input) + " an example", "a number of channels that is known");
}

namespace {

class Conv2DKind final : public LayerKind {
 public:
  static constexpr std::string_view kType = "Conv2D";

  explicit Conv2DKind(Conv2DOptions options) : options_(std::move(options)) {
    if (options_.filters <= 0) fail_option(kType, "filters must be positive, got ", options_.filters);
    check_images_window(kType, options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
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
                                                    .bias_initializer = options_.bias_initializer,
                                                    .kernel_regularizer = options_.kernel_regularizer,
                                                    .bias_regularizer = options_.bias_regularizer,
                                                    .kernel_constraint = options_.kernel_constraint,
                                                    .bias_constraint = options_.bias_constraint},
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

}  // namespace

Layer Conv2D(const Conv2DOptions& options) {
  return make_layer<Conv2DKind>(options, options.trainable);
}

Layer Conv2D(int64_t filters, Size2 kernel_size, const Activation& activation) {
  return Conv2D(Conv2DOptions{.filters = filters, .kernel_size = kernel_size, .activation = activation});
}

}  // namespace cohort
