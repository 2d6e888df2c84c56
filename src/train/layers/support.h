// The code that the layers have in common: checks with good messages, parameters, and the arithmetic of sliding
// windows.
#pragma once

#include <torch/types.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/fail.h"
#include "cohort/train/layers/layer.h"
#include "ops/fused_convolution.h"

namespace cohort {

// "[784]", "[3, ?, ?]"
std::string to_text(const Shape& shape);

// Returns a name in lower case without underscores: "GlorotUniform" and "glorot_uniform" are the same.
std::string plain_name(std::string_view name);

// Fails with InvalidArgument that tells what came to a layer and what it wants.
[[noreturn]] void fail_input(const std::string& layer, std::string_view type, const std::string& came,
                             const std::string& wanted);

// Fails for an option that makes no sense: "[layers] Dense: units ...".
template <typename... Parts>
[[noreturn]] void fail_option(std::string_view type, const Parts&... parts) {
  fail<InvalidArgument>("[layers] ", type, ": ", parts...);
}

// Checks a call's input: `rank` dimensions (0: two or more) with `size` in dimension `dim`, floating point.
void check_input(const std::string& layer, std::string_view type, const torch::Tensor& x, int64_t rank, int64_t dim,
                 int64_t size);
[[noreturn]] void fail_called(const std::string& layer, std::string_view type, const torch::Tensor& x,
                              const std::string& wanted);

// A parameter with what it costs.
struct Regularized {
  const Regularizer& regularizer;
  torch::Tensor parameter;
};
// Adds up what parameters that learn cost; undefined for nothing.
torch::Tensor penalty_of(std::initializer_list<Regularized> parameters);

// Returns the replica's own generator for a tensor of its devices; outside replicas nothing, LibTorch's default one.
c10::optional<at::Generator> own_generator(const torch::Tensor& like);
// Sets elements to zero with probability `rate`, and lets the others grow by 1 / (1 - rate). Draws from
// own_generator().
torch::Tensor drop_out(const torch::Tensor& x, double rate);

// Returns the rows of a matrix that x numbers, integers, of which this replica has the same number as the others along
// an axis, so that there are `rows` in all. IndexError, LibTorch's: x has other numbers. FailedPrecondition: called
// outside run(), by `who`.
torch::Tensor look_up_in_parts(const std::string& who, const torch::Tensor& part, const torch::Tensor& x, int64_t rows,
                               const std::string& axis);
// Returns this replica's terms of them, of which the sum along the axis is what look_up_in_parts() returns: the rows
// that it has, and zeros.
torch::Tensor look_up_own(const std::string& who, const torch::Tensor& part, const torch::Tensor& x, int64_t rows,
                          const std::string& axis);

// Returns an empty result that depends on the sources: the input and the parameters. Backward then reaches the layers
// below, which may wait for the other replicas there. Skips undefined sources.
torch::Tensor empty_from(const std::vector<torch::Tensor>& sources, torch::IntArrayRef shape);

// Makes a layer whose kind is Kind(options).
template <typename Kind, typename Options>
Layer make_layer(const Options& options, bool trainable = true) {
  return Layer(made_with<Kind>(options, options), options.name, trainable);
}

class PoolingModule : public LayerModule {
 public:
  PoolingModule(bool takes_maximum, const Window2& window) : takes_maximum_(takes_maximum), window_(window) {}
  bool takes_maximum() const { return takes_maximum_; }
  const Window2& window() const { return window_; }

 private:
  bool takes_maximum_;
  Window2 window_;
};

// forward() is activation() of convolve().
class ConvolutionModule : public LayerModule {
 public:
  torch::Tensor forward(const torch::Tensor& x) final;
  virtual torch::Tensor convolve(const torch::Tensor& x) = 0;
  virtual const Activation& activation() const = 0;
  // Returns the convolution with what follows it, or undefined if convolve() and operations have to do it.
  virtual torch::Tensor fused(const torch::Tensor& /*x*/, const AfterConvolution& /*after*/) const { return {}; }
};

// Returns the zeros that a layer's padding asks for.
inline Pads pads_of(Padding padding) {
  return padding == Padding::kValid ? Pads::kNone : padding == Padding::kSame ? Pads::kAround : Pads::kBefore;
}
Window2 make_window(Size2 size, Size2 stride, Size2 dilation, Padding padding);
// Fails with InvalidArgument for Padding::kCausal, which images do not have.
void check_padding(std::string_view type, Padding padding);
// Fails with InvalidArgument unless all sizes are positive and strides and dilation are not both above 1.
void check_window(std::string_view type, torch::IntArrayRef kernel, torch::IntArrayRef strides,
                  torch::IntArrayRef dilation);
// Does both checks for a convolution of images.
void check_images_window(std::string_view type, Size2 kernel, Size2 strides, Size2 dilation, Padding padding);
// Returns the weight of a convolution in the layout that is fastest here.
torch::Tensor fast_layout(const torch::Tensor& weight);

// Returns the channels, height and width of an image's shape; with `may_add_channel` [height, width] is one channel.
Shape image_shape(const BuildContext& context, std::string_view type, bool may_add_channel);
// Returns the shape of an image, which may lack the channel. InvalidArgument: the number of its channels is not known.
Shape known_image(const BuildContext& context, std::string_view type);
// Returns the output's shape. InvalidArgument: the window does not fit.
Shape window_output(const BuildContext& context, std::string_view type, const Shape& image, int64_t channels,
                    const Window2& window);

}  // namespace cohort
