// Conv1D and Conv3D: one module for any number of dimensions.
#include <ATen/Functions.h>

#include "cohort/train/layers/more_convolutions.h"
#include "ops/convolution.h"
#include "train/layers/constraints.h"
#include "train/layers/support.h"

namespace cohort {

namespace {

// The part that the two have in common.
struct ConvolutionN {
  std::string_view type;
  std::string_view base_name;
  int64_t filters = 0;
  int64_t groups = 1;
  std::vector<WindowShape> windows;  // one for each dimension
  Activation activation;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::kGlorotUniform;
  Initializer bias_initializer = Initializer::kZeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
};

class ConvNModule final : public LayerModule, public ConstrainedLayer {
 public:
  ConvNModule(ConvolutionN convolution, const BuildContext& context)
      : conv_(std::move(convolution)), name_(context.name), channels_(context.input[0]) {
    std::vector<int64_t> shape = {conv_.filters, channels_ / conv_.groups};
    std::vector<int64_t> keras;
    for (const WindowShape& window : conv_.windows) {
      shape.push_back(window.size);
      keras.push_back(window.size);
      strides_.push_back(window.stride);
      dilation_.push_back(window.dilation);
    }
    keras.insert(keras.end(), {channels_ / conv_.groups, conv_.filters});
    weight_ = register_parameter("weight", torch::empty(shape, context.dtype));
    conv_.kernel_initializer.fill(weight_, Fans::of_kernel(keras));
    constrain_by(conv_.kernel_constraint, weight_);
    if (!conv_.use_bias) return;
    bias_ = register_parameter("bias", torch::empty({conv_.filters}, context.dtype));
    conv_.bias_initializer.fill(bias_, Fans::of_kernel({conv_.filters}));
    constrain_by(conv_.bias_constraint, bias_);
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    check_input(name_, conv_.type, input, static_cast<int64_t>(conv_.windows.size()) + 2, 1, channels_);
    if (input.size(0) == 0) return empty_output(input);
    torch::Tensor x = input;
    std::vector<int64_t> even, borders;
    bool is_even = true;
    for (std::size_t i = 0; i < conv_.windows.size(); ++i) {
      const auto [before, after] = conv_.windows[i].pads(x.size(static_cast<int64_t>(i) + 2));
      even.push_back(before);
      borders.insert(borders.begin(), {before, after});  // the last dimension comes first
      is_even = is_even && before == after;
    }
    if (!is_even) {
      x = at::constant_pad_nd(x, borders);
      even.assign(even.size(), 0);
    }
    const bool is_safe = !is_unsafe_in_half(
        {.image = x.sizes().slice(2), .kernel = weight_.sizes().slice(2), .stride = strides_, .dilation = dilation_},
        conv_.groups);
    return conv_.activation.overwrite(
        convolve_safely(is_safe, x, weight_, bias_,
                        [&](const torch::Tensor& values, const torch::Tensor& kernel, const torch::Tensor& bias) {
                          // Autocast on CPUs supports conv1d but not convolution. Volumes run in float32 there.
                          if (even.size() == 1)
                            return at::conv1d(values, kernel, bias, strides_, even, dilation_, conv_.groups);
                          return at::convolution(values, kernel, bias, strides_, even, dilation_, /*transposed=*/false,
                                                 std::vector<int64_t>(even.size(), 0), conv_.groups);
                        }));
  }
  torch::Tensor penalty() const override {
    return penalty_of({{conv_.kernel_regularizer, weight_}, {conv_.bias_regularizer, bias_}});
  }

 private:
  torch::Tensor empty_output(const torch::Tensor& x) const {
    std::vector<int64_t> shape = {0, conv_.filters};
    for (std::size_t i = 0; i < conv_.windows.size(); ++i) {
      shape.push_back(conv_.windows[i].output(x.size(static_cast<int64_t>(i) + 2)));
    }
    return empty_from({x, weight_, bias_}, shape);
  }

  ConvolutionN conv_;
  std::string name_;
  int64_t channels_;
  std::vector<int64_t> strides_, dilation_;
  torch::Tensor weight_, bias_;
};

class ConvNKind final : public LayerKind {
 public:
  explicit ConvNKind(ConvolutionN convolution) : conv_(std::move(convolution)) {
    if (conv_.filters <= 0) fail_option(conv_.type, "filters must be positive, got ", conv_.filters);
    if (conv_.groups <= 0 || conv_.filters % conv_.groups != 0) {
      fail_option(conv_.type, "groups must be positive and divide the ", conv_.filters, " filters, got ", conv_.groups);
    }
    std::vector<int64_t> kernel, strides, dilation;
    for (const WindowShape& window : conv_.windows) {
      kernel.push_back(window.size);
      strides.push_back(window.stride);
      dilation.push_back(window.dilation);
    }
    check_window(conv_.type, kernel, strides, dilation);
  }
  std::string_view type() const override { return conv_.type; }
  std::string_view base_name() const override { return conv_.base_name; }

  Shape output_shape(const BuildContext& context) const override {
    const bool fits = context.input.size() == conv_.windows.size() + 1 && context.input[0] > 0 &&
                      context.input[0] % conv_.groups == 0;
    if (!fits) {
      fail_input(context.name, conv_.type, to_text(context.input) + " an example",
                 c10::str("channels that are known and that ", conv_.groups, " group(s) divide, and ",
                          conv_.windows.size(), " dimension(s)"));
    }
    Shape output = {conv_.filters};
    for (std::size_t i = 0; i < conv_.windows.size(); ++i) {
      output.push_back(conv_.windows[i].output(context.input[i + 1]));
      if (output.back() != 0) continue;
      fail_input(context.name, conv_.type, to_text(context.input) + " an example",
                 c10::str("at least ", conv_.windows[i].reach(), " in dimension ", i + 1));
    }
    return output;
  }
  std::shared_ptr<LayerModule> build(const BuildContext& context) const override {
    return std::make_shared<ConvNModule>(conv_, context);
  }

 private:
  ConvolutionN conv_;
};

// Takes over the options that Conv1D and Conv3D share.
template <typename Options>
Layer make_convolution(std::string_view type, std::string_view base_name, const Options& options,
                       std::vector<WindowShape> windows) {
  ConvolutionN convolution{.type = type,
                           .base_name = base_name,
                           .filters = options.filters,
                           .groups = options.groups,
                           .windows = std::move(windows),
                           .activation = options.activation,
                           .use_bias = options.use_bias,
                           .kernel_initializer = options.kernel_initializer,
                           .bias_initializer = options.bias_initializer,
                           .kernel_regularizer = options.kernel_regularizer,
                           .bias_regularizer = options.bias_regularizer,
                           .kernel_constraint = options.kernel_constraint,
                           .bias_constraint = options.bias_constraint};
  return Layer(made_with<ConvNKind>(options, std::move(convolution)), options.name, options.trainable);
}

}  // namespace

Layer Conv1D(const Conv1DOptions& options) {
  return make_convolution("Conv1D", "conv1d", options,
                          {{.size = options.kernel_size,
                            .stride = options.strides,
                            .dilation = options.dilation_rate,
                            .padding = pads_of(options.padding)}});
}

Layer Conv3D(const Conv3DOptions& options) {
  check_padding("Conv3D", options.padding);
  const auto window = [&](int64_t Size3::*part) {
    return WindowShape{.size = options.kernel_size.*part,
                       .stride = options.strides.*part,
                       .dilation = options.dilation_rate.*part,
                       .padding = pads_of(options.padding)};
  };
  return make_convolution("Conv3D", "conv3d", options,
                          {window(&Size3::depth), window(&Size3::height), window(&Size3::width)});
}

}  // namespace cohort
