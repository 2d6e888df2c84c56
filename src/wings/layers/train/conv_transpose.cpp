// Conv2DTranspose. The whole gradient of a convolution is computed, and then cut, or filled up with zeros, to Keras'
// size: with kSame input * strides, of which the padding of the forward convolution is missing at the beginning.
#include <ATen/Functions.h>

#include <algorithm>
#include <array>

#include "cohort/train/layers/more_convolutions.h"
#include "ops/convolution.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// A transposed convolution along one dimension.
struct Unwindow {
  int64_t size = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  Padding padding = Padding::kValid;
  std::optional<int64_t> more;  // output_padding

  int64_t reach() const { return (size - 1) * dilation + 1; }
  int64_t whole(int64_t input) const { return (input - 1) * stride + reach(); }
  // Returns the number of outputs; -1 for -1.
  int64_t output(int64_t input) const {
    if (input < 0) return -1;
    if (more) return whole(input) - (padding == Padding::kSame ? 2 * (reach() / 2) : 0) + *more;
    return input * stride + (padding == Padding::kSame ? 0 : std::max<int64_t>(reach() - stride, 0));
  }
  // Returns how many elements of the whole lie before the first output.
  int64_t before(int64_t input) const {
    return padding == Padding::kSame ? std::max<int64_t>(whole(input) - output(input), 0) / 2 : 0;
  }
};

class ConvTransposeModule final : public LayerModule {
 public:
  ConvTransposeModule(const Conv2DTransposeOptions& options, const std::array<Unwindow, 2>& windows,
                      const BuildContext& context)
      : options_(options), windows_(windows), name_(context.name), channels_(context.input[0]) {
    const int64_t height = options.kernel_size.height;
    const int64_t width = options.kernel_size.width;
    weight_ = register_parameter("weight", torch::empty({channels_, options.filters, height, width}, context.dtype));
    options.kernel_initializer.fill(weight_, Fans::of_kernel({height, width, options.filters, channels_}));
    if (!options.use_bias) return;
    bias_ = register_parameter("bias", torch::empty({options.filters}, context.dtype));
    options.bias_initializer.fill(bias_, Fans::of_kernel({options.filters}));
  }

  torch::Tensor forward(const torch::Tensor& x) override {
    check_input(name_, "Conv2DTranspose", x, 4, 1, channels_);
    if (x.size(0) == 0) {
      return empty_from({x, weight_, bias_},
                        {0, options_.filters, windows_[0].output(x.size(2)), windows_[1].output(x.size(3))});
    }
    const std::array<int64_t, 2> stride = {windows_[0].stride, windows_[1].stride};
    const std::array<int64_t, 2> dilation = {windows_[0].dilation, windows_[1].dilation};
    const std::array<int64_t, 2> whole = {windows_[0].whole(x.size(2)), windows_[1].whole(x.size(3))};
    const bool has_one_channel = channels_ == 1 && options_.filters == 1;
    const bool is_safe =
        !has_one_channel &&
        !is_unsafe_in_half({.image = whole, .kernel = weight_.sizes().slice(2), .stride = stride, .dilation = dilation},
                           /*groups=*/1, /*transposed=*/true);
    torch::Tensor y = convolve_safely(
        is_safe, x, weight_, {},
        [&](const torch::Tensor& images, const torch::Tensor& kernel, const torch::Tensor& /*bias*/) {
          return at::conv_transpose2d(images, kernel, {}, stride, {0, 0}, {0, 0}, /*groups=*/1, dilation);
        });
    std::vector<int64_t> borders;
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {  // the last dimension first
      const int64_t input = x.size(static_cast<int64_t>(i) + 2);
      const int64_t before = windows_[i].before(input);
      borders.push_back(-before);
      borders.push_back(windows_[i].output(input) + before - windows_[i].whole(input));
    }
    y = at::constant_pad_nd(y, borders);
    if (bias_.defined()) y = y + bias_.view({1, -1, 1, 1});
    return options_.activation.overwrite(y);
  }
  torch::Tensor penalty() const override {
    return penalty_of({{options_.kernel_regularizer, weight_}, {options_.bias_regularizer, bias_}});
  }

 private:
  Conv2DTransposeOptions options_;
  std::array<Unwindow, 2> windows_;
  std::string name_;
  int64_t channels_;
  torch::Tensor weight_, bias_;
};

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
    return std::make_shared<ConvTransposeModule>(options_, windows(), context);
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
