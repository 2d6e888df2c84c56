// The module of Conv2D and of DepthwiseConv2D.
#pragma once

#include <string>
#include <string_view>

#include "cohort/train/layers/convolution.h"
#include "train/layers/constraints.h"
#include "train/layers/layer_form.h"
#include "train/layers/support.h"

namespace cohort {

// The part that the two have in common once the number of input channels is known.
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
  Regularizer kernel_regularizer = {};
  Regularizer bias_regularizer = {};
  Constraint kernel_constraint = {};
  Constraint bias_constraint = {};
  Constrained::View as_keras = keras_kernel;  // of the weight
};

class ConvModule final : public ConvolutionModule, public FormedLayer, public ConstrainedLayer {
 public:
  ConvModule(Convolution convolution, const BuildContext& context);

  const std::string& layer_name() const { return name_; }
  const Convolution& convolution() const { return conv_; }
  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }  // undefined: there is none

  const Activation& activation() const override { return conv_.activation; }
  torch::Tensor convolve(const torch::Tensor& input) override;
  torch::Tensor fused(const torch::Tensor& input, const AfterConvolution& after) const override;
  torch::Tensor penalty() const override;

 private:
  // Returns images with a dimension of channels.
  torch::Tensor with_channel(const torch::Tensor& x) const;

  Convolution conv_;
  std::string name_;
  bool adds_channel_;
  torch::Tensor weight_, bias_;
};

}  // namespace cohort
