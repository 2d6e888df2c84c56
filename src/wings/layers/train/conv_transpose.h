// The module of transposed convolutions, of sequences, images and volumes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/layers/constraints.h"
#include "train/layers/support.h"

namespace cohort {

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

// The options that all of them have.
struct TransposedConvolution {
  std::string_view type;
  int64_t filters = 0;
  std::vector<Unwindow> windows;  // one for each dimension
  Activation activation;
  bool use_bias = true;
  Initializer kernel_initializer = Initializer::kGlorotUniform;
  Initializer bias_initializer = Initializer::kZeros;
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
};

template <typename Options>
TransposedConvolution transposed_convolution(std::string_view type, const Options& options,
                                             std::vector<Unwindow> windows) {
  return {.type = type,
          .filters = options.filters,
          .windows = std::move(windows),
          .activation = options.activation,
          .use_bias = options.use_bias,
          .kernel_initializer = options.kernel_initializer,
          .bias_initializer = options.bias_initializer,
          .kernel_regularizer = options.kernel_regularizer,
          .bias_regularizer = options.bias_regularizer,
          .kernel_constraint = options.kernel_constraint,
          .bias_constraint = options.bias_constraint};
}

class ConvTransposeModule final : public LayerModule, public ConstrainedLayer {
 public:
  ConvTransposeModule(TransposedConvolution convolution, const BuildContext& context);

  torch::Tensor forward(const torch::Tensor& x) override;
  torch::Tensor penalty() const override;

 private:
  torch::Tensor whole_gradient(const torch::Tensor& x, const torch::Tensor& kernel) const;

  TransposedConvolution conv_;
  std::string name_;
  int64_t channels_;
  std::vector<int64_t> strides_, dilation_;
  torch::Tensor weight_, bias_;
};

}  // namespace cohort
