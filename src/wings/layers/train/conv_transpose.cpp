// Transposed convolutions. The whole gradient of a convolution is computed, and then cut, or filled up with zeros, to
// Keras' size: with kSame input * strides, of which the padding of the forward convolution is missing at the beginning.
#include "wings/layers/train/conv_transpose.h"

#include <ATen/Functions.h>

#include <array>

#include "cohort/train/layers/more_convolutions.h"
#include "ops/convolution.h"

namespace cohort {

ConvTransposeModule::ConvTransposeModule(TransposedConvolution convolution, const BuildContext& context)
    : conv_(std::move(convolution)), name_(context.name), channels_(context.input[0]) {
  std::vector<int64_t> shape = {channels_, conv_.filters};
  std::vector<int64_t> keras;
  for (const Unwindow& window : conv_.windows) {
    shape.push_back(window.size);
    keras.push_back(window.size);
    strides_.push_back(window.stride);
    dilation_.push_back(window.dilation);
  }
  keras.insert(keras.end(), {conv_.filters, channels_});
  weight_ = register_parameter("weight", torch::empty(shape, context.dtype));
  conv_.kernel_initializer.fill(weight_, Fans::of_kernel(keras));
  constrain_by(conv_.kernel_constraint, weight_);
  if (!conv_.use_bias) return;
  bias_ = register_parameter("bias", torch::empty({conv_.filters}, context.dtype));
  conv_.bias_initializer.fill(bias_, Fans::of_kernel({conv_.filters}));
  constrain_by(conv_.bias_constraint, bias_);
}

torch::Tensor ConvTransposeModule::forward(const torch::Tensor& x) {
  const std::size_t places = conv_.windows.size();
  check_input(name_, conv_.type, x, static_cast<int64_t>(places) + 2, 1, channels_);
  std::vector<int64_t> whole, output, borders;
  for (std::size_t i = 0; i < places; ++i) {
    const int64_t input = x.size(static_cast<int64_t>(i) + 2);
    whole.push_back(conv_.windows[i].whole(input));
    output.push_back(conv_.windows[i].output(input));
    const int64_t before = conv_.windows[i].before(input);
    borders.insert(borders.begin(), {-before, output[i] + before - whole[i]});  // the last dimension first
  }
  if (x.size(0) == 0) {
    output.insert(output.begin(), {0, conv_.filters});
    return empty_from({x, weight_, bias_}, output);
  }
  const bool has_one_channel = channels_ == 1 && conv_.filters == 1;
  const bool is_safe =
      !has_one_channel &&
      !is_unsafe_in_half(
          {.image = whole, .kernel = weight_.sizes().slice(2), .stride = strides_, .dilation = dilation_},
          /*groups=*/1, /*transposed=*/true);
  torch::Tensor y = convolve_safely(is_safe, x, weight_, {},
                                    [&](const torch::Tensor& values, const torch::Tensor& kernel,
                                        const torch::Tensor& /*bias*/) { return whole_gradient(values, kernel); });
  y = at::constant_pad_nd(y, borders);
  if (bias_.defined()) {
    std::vector<int64_t> shape(places + 2, 1);
    shape[1] = -1;
    y = y + bias_.view(shape);
  }
  return conv_.activation.overwrite(y);
}

torch::Tensor ConvTransposeModule::whole_gradient(const torch::Tensor& x, const torch::Tensor& kernel) const {
  const std::vector<int64_t> none(conv_.windows.size(), 0);
  switch (none.size()) {
    case 1:
      return at::conv_transpose1d(x, kernel, {}, strides_, none, none, /*groups=*/1, dilation_);
    case 2:
      return at::conv_transpose2d(x, kernel, {}, strides_, none, none, /*groups=*/1, dilation_);
    default:
      return at::conv_transpose3d(x, kernel, {}, strides_, none, none, /*groups=*/1, dilation_);
  }
}

torch::Tensor ConvTransposeModule::penalty() const {
  return penalty_of({{conv_.kernel_regularizer, weight_}, {conv_.bias_regularizer, bias_}});
}

namespace {

class ConvTransposeKind final : public LayerKind {
 public:
  explicit ConvTransposeKind(Conv2DTransposeOptions options) : options_(std::move(options)) {
    if (options_.filters <= 0) fail_option(type(), "filters must be positive, got ", options_.filters);
    const Size2 &kernel = options_.kernel_size, &strides = options_.strides, &dilation = options_.dilation_rate;
    check_window(type(), {kernel.height, kernel.width}, {strides.height, strides.width},
                 {dilation.height, dilation.width});
    check_padding(type(), options_.padding);
    if (!options_.output_padding) return;
    const Size2& more = *options_.output_padding;
    if (more.height >= 0 && more.width >= 0 && more.height < strides.height && more.width < strides.width) return;
    fail_option(type(), "output_padding must be 0 or more and below the strides, got ", more.height, " x ", more.width);
  }
  std::string_view type() const override { return "Conv2DTranspose"; }
  std::string_view base_name() const override { return "conv2d_transpose"; }

  Shape output_shape(const BuildContext& context) const override {
    const Shape image = image_shape(context, type(), /*may_add_channel=*/false);
    const auto sides = windows();
    Shape output = {options_.filters, sides[0].output(image[1]), sides[1].output(image[2])};
    if (image[0] <= 0 || output[1] == 0 || output[2] == 0) {
      fail_input(context.name, type(), to_text(context.input) + " an example",
                 "a number of channels that is known, and an output with pixels");
    }
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    const auto sides = windows();
    return std::make_shared<ConvTransposeModule>(transposed_convolution(type(), options_, {sides[0], sides[1]}),
                                                 context);
  }

 private:
  std::array<Unwindow, 2> windows() const {
    const auto side = [&](int64_t Size2::*part) {
      Unwindow window{.size = options_.kernel_size.*part,
                      .stride = options_.strides.*part,
                      .dilation = options_.dilation_rate.*part,
                      .padding = options_.padding};
      if (options_.output_padding) window.more = (*options_.output_padding).*part;
      return window;
    };
    return {side(&Size2::height), side(&Size2::width)};
  }

  Conv2DTransposeOptions options_;
};

}  // namespace

Layer Conv2DTranspose(const Conv2DTransposeOptions& options) {
  return make_layer<ConvTransposeKind>(options, options.trainable);
}

}  // namespace cohort
