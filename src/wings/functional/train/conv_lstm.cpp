// ConvLSTM2D: an LSTM over sequences of images whose products are convolutions.
#include <ATen/Functions.h>

#include <algorithm>

#include "ops/convolution.h"
#include "train/layers/constraints.h"
#include "wings/functional/train/rnn.h"

namespace cohort {

namespace {

constexpr std::string_view kConvLstm = "ConvLSTM2D";

// Returns the windows over the inputs.
Window2 input_window(const ConvLSTM2DOptions& options) {
  return make_window(options.kernel_size, options.strides, options.dilation_rate, options.padding);
}

class ConvLstmCellModule final : public RNNCellModule, public ConstrainedLayer {
 public:
  ConvLstmCellModule(const ConvLSTM2DOptions& options, const BuildContext& context)
      : options_(options),
        name_(context.name),
        channels_(options.channels_first ? context.input.front() : context.input.back()) {
    const int64_t height = options.kernel_size.height;
    const int64_t width = options.kernel_size.width;
    const int64_t rows = 4 * options.filters;
    input_weight_ = register_parameter("weight_ih", torch::empty({rows, channels_, height, width}, context.dtype));
    options.kernel_initializer.fill(input_weight_, Fans::of_kernel({height, width, channels_, rows}));
    state_weight_ =
        register_parameter("weight_hh", torch::empty({rows, options.filters, height, width}, context.dtype));
    options.recurrent_initializer.fill(state_weight_, Fans::of_kernel({height, width, options.filters, rows}));
    constrain_by(options.kernel_constraint, input_weight_);
    constrain_by(options.recurrent_constraint, state_weight_);
    if (!options.use_bias) return;
    bias_ = register_parameter("bias", torch::empty({rows}, context.dtype));
    options.bias_initializer.fill(bias_, Fans::of_kernel({rows}));
    constrain_by(options.bias_constraint, bias_);
    if (!options.unit_forget_bias) return;
    const torch::NoGradGuard no_grad;
    bias_.slice(0, options.filters, 2 * options.filters).fill_(1.0);
  }

  torch::Tensor step(const torch::Tensor& x, std::vector<torch::Tensor>& states, RNNCellMemo& memo) override {
    if (options_.channels_first) return step_of_images(x, states, memo);
    check_input(name_, kConvLstm, x, 4, 3, channels_);
    for (torch::Tensor& state : states) state = state.movedim(-1, 1);
    step_of_images(x.movedim(-1, 1), states, memo);
    for (torch::Tensor& state : states) state = state.movedim(1, -1);
    return states[0];
  }

  torch::Tensor penalty() const override {
    return penalty_of({{options_.kernel_regularizer, input_weight_},
                       {options_.recurrent_regularizer, state_weight_},
                       {options_.bias_regularizer, bias_}});
  }

 private:
  // Computes a step of images whose channels come first.
  torch::Tensor step_of_images(const torch::Tensor& x, std::vector<torch::Tensor>& states, RNNCellMemo& memo) {
    check_input(name_, kConvLstm, x, 4, 1, channels_);
    const Window2 window = input_window(options_);
    if (states.empty()) {
      states.assign(
          2, at::zeros({x.size(0), options_.filters, window.height.output(x.size(2)), window.width.output(x.size(3))},
                       x.options().requires_grad(false)));
    }
    draw_masks(memo, is_training(), x, states[0], {.input = options_.dropout, .state = options_.recurrent_dropout});
    const Window2 same = make_window(options_.kernel_size, 1, 1, Padding::kSame);
    const torch::Tensor sums = convolved(masked(x, memo.tensors[0]), input_weight_, bias_, window) +
                               convolved(masked(states[0], memo.tensors[1]), state_weight_, {}, same);
    const std::vector<torch::Tensor> gates = sums.chunk(4, 1);
    const Activation& open = options_.recurrent_activation;
    states[1] = open(gates[1]) * states[1] + open(gates[0]) * options_.activation(gates[2]);
    states[0] = open(gates[3]) * options_.activation(states[1]);
    return states[0];
  }

  static torch::Tensor convolved(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                 const Window2& window) {
    if (x.size(0) == 0) {
      return empty_from({x, weight, bias},
                        {0, weight.size(0), window.height.output(x.size(2)), window.width.output(x.size(3))});
    }
    return convolve_images(x, weight, bias, window, /*groups=*/1);
  }

  ConvLSTM2DOptions options_;
  std::string name_;
  int64_t channels_;
  torch::Tensor input_weight_, state_weight_, bias_;
};

class ConvLstmCellKind final : public RNNCellKind {
 public:
  explicit ConvLstmCellKind(ConvLSTM2DOptions options) : options_(std::move(options)) {
    if (options_.filters <= 0) fail_option(kConvLstm, "filters must be positive, got ", options_.filters);
    check_images_window(kConvLstm, options_.kernel_size, options_.strides, options_.dilation_rate, options_.padding);
    check_dropout(kConvLstm, {.input = options_.dropout, .state = options_.recurrent_dropout});
  }
  std::string_view type() const override { return kConvLstm; }
  std::string_view base_name() const override { return "conv_lstm2d"; }
  Shape output_shape(const BuildContext& given) const override {
    BuildContext context = given;
    Shape& input = context.input;
    if (!options_.channels_first && !input.empty()) std::rotate(input.begin(), input.end() - 1, input.end());
    Shape output = images_output(context);
    if (!options_.channels_first) std::rotate(output.begin(), output.begin() + 1, output.end());
    return output;
  }
  std::vector<Shape> state_shapes(const BuildContext& context) const override {
    return std::vector<Shape>(2, output_shape(context));
  }
  std::shared_ptr<RNNCellModule> build_cell(const BuildContext& context) const override {
    return std::make_shared<ConvLstmCellModule>(options_, context);
  }

 private:
  // Returns the output's shape where the channels come first.
  Shape images_output(const BuildContext& context) const {
    const Shape image = image_shape(context, kConvLstm, /*may_add_channel=*/false);
    if (image[0] <= 0) {
      fail_input(context.name, kConvLstm, to_text(context.input) + " a step", "a number of channels that is known");
    }
    return window_output(context, kConvLstm, image, options_.filters, input_window(options_));
  }

  ConvLSTM2DOptions options_;
};

}  // namespace

Layer ConvLSTM2D(const ConvLSTM2DOptions& options) {
  return make_rnn({.type = kConvLstm, .base_name = "conv_lstm2d", .options = options},
                  std::make_shared<ConvLstmCellKind>(options), rnn_options(options));
}

}  // namespace cohort
